"""Label a file of rows with a saved classifier; an interrupted run can be resumed."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import time
from collections.abc import Iterable

from knnprompt_jax import errors, files, options, parallel, states
from knnprompt_jax.classifier import estimator, saving
from knnprompt_jax.classifier.base import Classifier
from knnprompt_jax.prediction import batches, outputs, rows, writing
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.tasks.task import Example


@dataclasses.dataclass(frozen=True)
class PredictionSettings(settings_lib.FileOptions, settings_lib.SavedOptions):
    """The rows to label, and the output."""

    input: str = options.option("", "File of rows, or - for standard input.", needed=True)
    output: str = options.option("", "File to write, or - for standard output.", needed=True)
    format: str = options.option("", f"Format of the input, by default its name's ending: {', '.join(rows.KINDS)}.")
    output_format: str = options.option(
        "", f"Format of the output, by default its name's ending: {', '.join(writing.KINDS)}."
    )
    probabilities: bool = options.option(False, "Write the probability of every class too.")
    abstain: float = options.option(
        0.0, "Leave the label empty where its probability is lower; 0: never.", least=0, most=1
    )
    keep: str = options.option(
        writing.IDS,
        "Columns of the input to copy: ids (columns named like id or ticket_id), all, none, or names with commas between.",
        needed=True,
    )
    overwrite: bool = options.option(False, "Replace an existing output once the new one is complete.")
    on_bad: str = options.option("stop", "What to do at a bad row.", choices=("stop", "skip"))
    characters: int = options.option(0, "Characters of text per batch; 0: what suits the model.", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input != rows.STANDARD and os.path.realpath(self.output) == os.path.realpath(self.input):
            raise errors.UserError(f"--output={self.output}: it is the input, which would be lost")
        if self.output != outputs.STANDARD:
            saving.check_outside(pathlib.Path(self.output))
        if self.kind not in writing.KINDS:
            if self.output != outputs.STANDARD:
                files.check_writable(pathlib.Path(self.output))  # Report a broken link before a missing ending.
            raise errors.UserError(f"--output_format={self.kind}: choose from {', '.join(writing.KINDS)}")

    @property
    def kind(self) -> str:
        """The format of the output."""
        if self.output == outputs.STANDARD:
            return self.output_format or "jsonl"
        return self.output_format or pathlib.Path(self.output).suffix[1:]


@dataclasses.dataclass(frozen=True)
class Summary:
    """Rows labelled by this run and by earlier ones, and this run's seconds without loading the model."""

    rows: int
    earlier: int
    seconds: float


def run(settings: PredictionSettings) -> Summary:
    """Label all rows, or those that an interrupted run has left. Memory does not grow with their number.

    Raises:
      UserError: no such classifier, input or model; an output that exists, cannot be written or is written by another process; a
        bad row, once the rows before it are written.
    """
    saved = saving.read(pathlib.Path(settings.store))
    output_context: contextlib.AbstractContextManager[outputs.Output]
    if settings.output == outputs.STANDARD:
        output_context = contextlib.nullcontext(outputs.StandardOutput())
    else:
        plan = {"store": saved.digest, "output_format": settings.kind}
        plan |= {name: getattr(settings, name) for name in ("probabilities", "abstain", "keep")}
        output_context = outputs.to_file(pathlib.Path(settings.output), plan, settings.overwrite)
    with output_context as output:
        source = settings.input, settings.format, settings.encoding
        may_restart = settings.overwrite and settings.input != rows.STANDARD  # A pipe can be read only once.
        if may_restart and isinstance(output, outputs.FileOutput) and not rows.begins_alike(*source, output.mark):
            output.start_anew()
        waiting = rows.read(saved.content.task, *source, output.mark)
        first = next(waiting, None)
        example = first.example if first else None
        if isinstance(example, errors.UserError) and settings.on_bad == "stop":
            raise example
        if isinstance(example, Example):
            writing.kept(settings.keep, example.other)
        classifier = estimator.restore(saved, saved.load_model(parallel.make_mesh(0, settings.mesh_model)))
        started, earlier = time.monotonic(), output.mark.rows
        count = _label(settings, classifier, itertools.chain([first] if first else [], waiting), output)
    return Summary(count, earlier, time.monotonic() - started)


def _label(
    settings: PredictionSettings, classifier: Classifier, waiting: Iterable[rows.MarkedRow], output: outputs.Output
) -> int:
    """Label the remaining rows and return their number."""
    classes, count = tuple(classifier.classes_.tolist()), 0
    form = writing.Format(settings.kind, classes, settings.probabilities, tuple(output.kept))
    begins, skip = not output.mark.rows, settings.on_bad == "skip"
    for batch in batches.ahead(batches.read(waiting, classifier, settings.characters, skip)):
        title = f"rows from {batch.examples[0].row:,}"
        read = states.read(classifier.model, batch.prompts, title=title, repeated=True)
        predictions = classifier.answer_states(read).abstaining(settings.abstain)
        if begins:
            output.kept = writing.kept(settings.keep, batch.examples[0].other)
            form = dataclasses.replace(form, kept=output.kept)
        text = (form.header() if begins else b"") + form.lines(batch.examples, predictions)
        count, begins = count + len(batch.examples), False
        if not output.write(text, batch.mark):
            return count
    if begins:  # There were no rows.
        output.write(form.header(), output.mark)
    output.finish()
    return count
