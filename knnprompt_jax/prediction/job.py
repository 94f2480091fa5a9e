"""From a saved classifier and a file of rows to a file of predictions."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import time
from collections.abc import Iterable

from knnprompt_jax import errors, files, options, parallel, progress
from knnprompt_jax.classifier import answering, saving
from knnprompt_jax.classifier.core import Classifier
from knnprompt_jax.prediction import batches, outputs, rows, writing
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import manifest


@dataclasses.dataclass(frozen=True)
class PredictionSettings(settings_lib.FileOptions, settings_lib.SavedOptions):
    """What to label and where to write it."""

    input: str = options.option("", "File of rows, or - for standard input.", needed=True)
    output: str = options.option("", "File to write, or - for standard output.", needed=True)
    format: str = options.option("", f"Of the input, where its name does not say: {', '.join(rows.KINDS)}.")
    output_format: str = options.option("", f"Where the output's name does not say: {', '.join(writing.KINDS)}.")
    probabilities: bool = options.option(False, "Write every class's probability too.")
    abstain: float = options.option(
        0.0, "Leave the label empty where its probability is lower; 0: nowhere.", least=0, most=1
    )
    keep: str = options.option(
        writing.IDS,
        "Columns of the input to write too: ids (those that are named so, as id or ticket_id), all, none, or names with commas between.",
        needed=True,
    )
    overwrite: bool = options.option(False, "Replace an output that is there, once the new one is whole.")
    on_bad: str = options.option("stop", "What to do at a bad row.", choices=("stop", "skip"))
    characters: int = options.option(0, "Characters of text per batch; 0: what suits the model.", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input != rows.STANDARD and os.path.realpath(self.output) == os.path.realpath(self.input):
            raise errors.UserError(f"output={self.output!r}: it is the input, which would be lost")
        if self.kind not in writing.KINDS:
            if self.output != outputs.STANDARD:
                files.check_writable(pathlib.Path(self.output))  # A link to nothing needs no name with an ending first.
            raise errors.UserError(f"output_format={self.kind!r}: choose from {', '.join(writing.KINDS)}")

    @property
    def kind(self) -> str:
        """The format of the output."""
        if self.output == outputs.STANDARD:
            return self.output_format or "jsonl"
        return self.output_format or pathlib.Path(self.output).suffix[1:]


@dataclasses.dataclass(frozen=True)
class Summary:
    """Rows labelled by this run and by earlier ones, of all these those that rounding decides (`classifier.rounding`), and this run's
    seconds without those of loading the model."""

    rows: int
    by_rounding: int
    earlier: int
    seconds: float


def run(settings: PredictionSettings) -> Summary:
    """Labels all rows, or, after an earlier run that died, all that are left; memory does not grow with their number.

    Raises:
      UserError: no such store, input or model, an output that exists, that cannot be written or that another process
        writes, a bad row (those before it are written).
    """
    folder = pathlib.Path(settings.store).expanduser()
    saved = saving.read(folder)
    with _output(settings, folder) as output:
        if settings.overwrite and isinstance(output, outputs.FileOutput):
            _drop_other_rows(settings, output)
        waiting = rows.read(saved.content.task, settings.input, settings.format, settings.encoding, output.mark)
        first = next(waiting, None)
        if first and settings.on_bad == "stop" and isinstance(first.example, errors.UserError):
            raise first.example
        if first and not isinstance(first.example, errors.UserError):
            writing.kept(settings.keep, first.example.other)
        classifier = saved.classifier(Classifier, saved.load_model(parallel.make_mesh(0, settings.mesh_model)))
        started, earlier = time.monotonic(), output.mark.rows
        counts = _label(settings, classifier, itertools.chain([first] if first else [], waiting), output)
    return Summary(*counts, earlier, time.monotonic() - started)


def _drop_other_rows(settings: PredictionSettings, output: outputs.FileOutput) -> None:
    """Starts anew where the input does not begin with the rows that were labelled; what comes through a pipe can be read once only."""
    if settings.input != rows.STANDARD and not rows.begin_alike(
        settings.input, settings.format, settings.encoding, output.mark
    ):
        output.start_anew()


def _label(
    settings: PredictionSettings, classifier: Classifier, waiting: Iterable[rows.MarkedRow], output: outputs.Output
) -> tuple[int, int]:
    """Labels the rows that wait; gives their number, and that of all rows that rounding decides, earlier ones included."""
    laid, count, by_rounding = batches.BatchLayout(classifier, output.reads), 0, output.by_rounding
    form = writing.Format(
        settings.kind, tuple(classifier.classes_.tolist()), settings.probabilities, tuple(output.kept)
    )
    begins, skip = not output.mark.rows, settings.on_bad == "skip"
    with progress.bar(None, unit="row") as report:
        for batch in batches.ahead(batches.read(waiting, laid, settings.characters, skip)):
            said = answering.of_states(classifier, batches.states(batch, laid, report))
            predictions = said.abstaining(settings.abstain)
            if begins:
                output.kept = writing.kept(settings.keep, batch.examples[0].other)
                form = dataclasses.replace(form, kept=output.kept)
            text = (form.header() if begins else b"") + form.lines(batch.examples, predictions)
            count, begins = count + len(batch.examples), False
            if predictions.decided_by_rounding is not None:
                by_rounding += int(predictions.decided_by_rounding.sum())
            if not output.write(text, batch.mark, batch.reads, by_rounding):
                return count, by_rounding
    if begins:  # There were no rows.
        output.write(form.header(), output.mark, output.reads)
    output.finish()
    return count, by_rounding


def _output(settings: PredictionSettings, folder: pathlib.Path) -> contextlib.AbstractContextManager[outputs.Output]:
    if settings.output == outputs.STANDARD:
        return contextlib.nullcontext(outputs.StandardOutput())
    # The manifest has a checksum of every other file.
    plan = {"store": manifest.file_hash(folder / manifest.FILE), "output_format": settings.kind}
    plan |= {name: getattr(settings, name) for name in ("probabilities", "abstain", "keep")}
    return outputs.to_file(pathlib.Path(settings.output), plan, settings.overwrite)
