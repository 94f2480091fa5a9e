"""From a saved classifier and a file of rows to a file of predictions."""

import dataclasses
import itertools
import pathlib
import time
from collections.abc import Iterable

from knnprompt_jax import errors, parallel, progress
from knnprompt_jax.classifier import saving
from knnprompt_jax.classifier.estimator import KNNPrompting
from knnprompt_jax.prediction import batches, outputs, rows, writing
from knnprompt_jax.store import manifest

ON_BAD = ("stop", "skip")


@dataclasses.dataclass(frozen=True)
class PredictionSettings:
    """What to label and where to write it; see experiments/predict.py for each option's meaning."""

    store: str
    input: str
    output: str
    format: str = ""
    output_format: str = ""
    encoding: str = "utf-8"
    probabilities: bool = False
    on_bad: str = "stop"
    mesh_model: int = 1
    characters: int = 0

    def __post_init__(self) -> None:
        kind = self.output_format or (
            "jsonl" if self.output == outputs.STANDARD else pathlib.Path(self.output).suffix[1:]
        )
        object.__setattr__(self, "output_format", kind)
        for name, value, choices in (("output_format", kind, writing.KINDS), ("on_bad", self.on_bad, ON_BAD)):
            if value not in choices:
                raise errors.UserError(f"{name}={value!r}: choose from {', '.join(choices)}")


@dataclasses.dataclass(frozen=True)
class Summary:
    """Rows labelled by this run and by earlier ones, and seconds without those of loading the model."""

    rows: int
    earlier: int
    seconds: float


def run(settings: PredictionSettings) -> Summary:
    """Labels all rows, or, after an earlier run that died, all that are left; memory does not grow with their number.

    Raises:
      UserError: no such store, input or model, an output that exists, a bad row (those before it are written).
    """
    folder = pathlib.Path(settings.store).expanduser()
    saved = saving.read(folder)
    output = _output(settings, folder)
    waiting = rows.read(saved.content.task, settings.input, settings.format, settings.encoding, output.mark)
    first = next(waiting, None)
    if first and settings.on_bad == "stop" and isinstance(first.example, errors.UserError):
        raise first.example
    classifier = KNNPrompting.load(folder, mesh=parallel.make_mesh(0, settings.mesh_model))
    started, earlier = time.monotonic(), output.mark.rows
    count = _label(settings, classifier, itertools.chain([first] if first else [], waiting), output)
    return Summary(count, earlier, time.monotonic() - started)


def _label(
    settings: PredictionSettings, classifier: KNNPrompting, waiting: Iterable[rows.Row], output: outputs.Output
) -> int:
    """Labels the rows that wait; gives their number."""
    laid, count = batches.Layout(classifier, output.reads), 0
    classes, extra = classifier.classes_.tolist(), settings.probabilities
    head = b"" if output.mark.rows else writing.header(settings.output_format, classes, extra)
    skip = settings.on_bad == "skip"
    with progress.bar(None, unit="row") as report:
        for batch in batches.ahead(batches.read(waiting, laid, settings.characters, skip)):
            predictions = classifier.answer_states(batches.states(batch, laid, report))
            numbers = [example.row for example in batch.examples]
            text = head + writing.lines(settings.output_format, numbers, predictions, classes, extra)
            count, head = count + len(numbers), b""
            if not output.write(text, batch.mark, batch.reads):
                return count
    if head:
        output.write(head, output.mark, output.reads)
    output.finish()
    return count


def _output(settings: PredictionSettings, folder: pathlib.Path) -> outputs.Output:
    if settings.output == outputs.STANDARD:
        return outputs.StandardOutput()
    options = {name: getattr(settings, name) for name in ("output_format", "probabilities")}
    # The manifest has a checksum of every other file.
    plan = {"store": manifest.file_hash(folder / manifest.FILE), **options}
    return outputs.FileOutput(pathlib.Path(settings.output), plan)
