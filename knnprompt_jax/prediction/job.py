"""Label a file of rows with a saved classifier; an interrupted run can be resumed."""

import dataclasses
import functools
import itertools
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence

from knnprompt_jax import errors, options, parallel, states
from knnprompt_jax.classifier import estimator, saving
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
    characters: int = options.option(0, "Characters of text per batch; 0: what suits the model.", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input != rows.STANDARD and os.path.realpath(self.output) == os.path.realpath(self.input):
            raise errors.UserError(f"--output={self.output}: it is the input, which would be lost")
        if self.output != rows.STANDARD:
            saving.check_outside(pathlib.Path(self.output))
        if self.output_format and self.kind not in writing.KINDS:
            raise errors.UserError(f"--output_format={self.kind}: choose from {', '.join(writing.KINDS)}")
        if self.kind not in writing.KINDS:
            formats = " or ".join(writing.KINDS)
            raise errors.UserError(
                f"--output={self.output}: the format is not {formats}; name it with --output_format="
            )

    @property
    def kind(self) -> str:
        """The format of the output."""
        own = "jsonl" if self.output == rows.STANDARD else pathlib.Path(self.output).suffix[1:]
        return self.output_format or own


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
    encoding = settings.source(saved)["encoding"]
    read = functools.partial(rows.read, saved.content.task, settings.input, settings.format, encoding, settings.on_bad)
    if settings.output == rows.STANDARD:
        return _label(settings, saved, read())
    plan = {"store": saved.digest, "output_format": settings.kind}
    plan |= {name: getattr(settings, name) for name in ("probabilities", "abstain", "keep")}
    with outputs.to_file(pathlib.Path(settings.output), plan, settings.overwrite) as output:
        summary = _label(settings, saved, output.unfinished(read, settings.input), output)
        output.finish()
    return summary


def _label(
    settings: PredictionSettings,
    saved: saving.Saved,
    unfinished: Iterator[rows.Row],
    output: outputs.FileOutput | None = None,
) -> Summary:
    """Label the remaining rows; write to standard output if there is no other output."""
    first, earlier = next(unfinished, None), output.num_rows if output else 0
    if isinstance(first, errors.UserError):
        raise first
    kept = writing.kept(settings.keep, first.other) if first else ()
    if output:
        kept = output.kept = output.kept if output.num_bytes else kept
    classifier = estimator.restore(saved, saved.load_model(parallel.make_mesh(0, settings.mesh_model)))
    form = writing.Format(settings.kind, tuple(classifier.classes_.tolist()), settings.probabilities, kept)
    write, started, count = output.write if output else _print, time.monotonic(), 0
    header = b"" if output and output.num_bytes else form.header()
    waiting = itertools.chain([first] if first else [], unfinished)
    for batch in batches.ahead(batches.read(waiting, classifier, settings.characters)):
        title = f"rows from {batch.examples[0].row:,}"
        read = states.read(classifier.model, batch.prompts, title=title, repeated=True, layers=classifier.layers)
        predictions = classifier.answer_states(read).abstaining(settings.abstain)
        write(header + form.lines(batch.examples, predictions), batch.examples)
        header = b""
        count += len(batch.examples)
    if header:  # There were no rows.
        write(header, ())
    return Summary(count, earlier, time.monotonic() - started)


def _print(content: bytes, examples: Sequence[Example]) -> None:
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
