"""Label a file of rows with a saved classifier; an interrupted run can be resumed."""

import contextlib
import dataclasses
import functools
import itertools
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from knnprompt_jax import errors, parallel, progress, states
from knnprompt_jax.classifier import saving
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.classifier.inputs import ANSWERED, NOVEL, UNCERTAIN, Predictions
from knnprompt_jax.commands import predictions_file, predictions_format, unlabelled
from knnprompt_jax.confidence import novelty, selective
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import commands
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.tasks.task import Example, Task


@dataclasses.dataclass(frozen=True)
class Summary:
    """The counts and the time of a run.

    Attributes:
        rows: the number of rows that the run labelled.
        earlier: the number of rows that earlier runs labelled; 0 except in process 0.
        seconds: the time of the run without the loading of the model.
        outcomes: the number of rows of all runs by each outcome that the options allow, in process 0.
    """

    rows: int
    earlier: int
    seconds: float
    outcomes: Mapping[str, int]

    @property
    def counts(self) -> str:
        """The number of rows by outcome as text; empty if all must be answered."""
        counts = [f"{count:,} {name}" for name, count in self.outcomes.items()]
        return ", ".join(counts) if len(counts) > 1 else ""


def run(settings: commands.PredictionSettings) -> Summary:
    """Label all rows, or the rows that an interrupted run did not finish. Memory does not grow with their number.

    Only process 0 reads the input and writes the output. Every process reads its share of each batch's prompts.

    Raises:
        UserError: the classifier, the input or the model does not exist; the output exists, cannot be written or is
            written by another process; the error rate cannot be promised; or a row is bad (the rows before it are
            written first).
    """
    inputs.join_processes(settings.distributed)
    saved = saving.read(pathlib.Path(settings.classifier)).with_prior(settings.prior)
    if settings.max_error is not None and saved.content.choice:
        selective.certify(*saved.content.held_out(), settings.max_error)  # Refused before the model loads.
    if settings.reject_novel is not None:
        novelty.check_threshold(settings.reject_novel, saved.content.num_novelty_rows)
    mesh = parallel.make_mesh(0, settings.mesh.model)
    with parallel.enter_in_main(_opened(settings, saved)) as opened:
        remaining, output = opened or ((), predictions_file.Output())
        fitted = saved.restore(saved.load_model(mesh))
        classes = tuple(fitted.classes.tolist())
        form = predictions_format.Format(
            settings.kind, classes, settings.probabilities, output.progress.kept, settings.keep, settings.neighbours
        )
        output.header = form.header()
        earlier = output.progress.predictions
        least = _least_probability(settings, fitted)
        started = time.monotonic()
        num_views = len(fitted.content.views)
        with progress.whole(_num_rows(settings, saved, bool(opened)), "row", num_views) as settle:
            settle(output.progress.rows)
            count = _label(settings, fitted, least, remaining, output, form, settle)
        parallel.call_in_main(output.finish)
    outcomes = {name: output.progress.outcomes.get(name, 0) for name in _possible_outcomes(settings)}
    return Summary(count, earlier, time.monotonic() - started, outcomes)


def _possible_outcomes(settings: commands.PredictionSettings) -> list[str]:
    """Return the outcomes that the options allow."""
    names = [ANSWERED]
    if settings.max_error is not None or settings.abstain:
        names.append(UNCERTAIN)
    if settings.reject_novel is not None:
        names.append(NOVEL)
    return names


def _least_probability(settings: commands.PredictionSettings, fitted: Fitted) -> float:
    """Return the probability from which on labels are written; a line on standard error says what a promise assumes."""
    if settings.max_error is None:
        return settings.abstain
    least = fitted.threshold(settings.max_error)
    share = f"{100 * settings.max_error:g} %"
    progress.note(
        f"labels of probability {selective.rounded(least)} or more are written, so that at most {share} of them are wrong "
        "if these texts come from the same mixture as the train rows"
    )
    return least


def _label(
    settings: commands.PredictionSettings,
    fitted: Fitted,
    least: float,
    remaining: Iterable[unlabelled.Row],
    output: predictions_file.Output,
    form: predictions_format.Format,
    settle: Callable[[int], None],
) -> int:
    """Label the remaining rows batch by batch, call `settle` with the number of settled rows, and return their number.

    A bad row ends the work with its error, after the rows before it.
    """
    cache = None if settings.text else states.open_disk_cache(settings.cache_gb, is_capped=True)
    batches = unlabelled.prefetch(unlabelled.batches(remaining, fitted, settings.characters))
    count = 0
    num_truncated = 0
    try:
        while batch := parallel.call_in_main(functools.partial(next, batches, None)):
            readings = fitted.read_prompts(batch.queries, cache, title="")
            predictions = fitted.answer(readings, settings.neighbours).abstaining(least)
            predictions = predictions.rejecting(fitted.novelty(readings), settings.reject_novel)
            parallel.call_in_main(functools.partial(_write, output, form, batch.examples, predictions))
            count += len(batch.examples)
            num_truncated += batch.queries.num_truncated
            settle(batch.examples[-1].row + 1)
    finally:
        if parallel.is_main():
            layout.warn_truncated(num_truncated, count, fitted.model.context)
    return count


def _num_rows(settings: commands.PredictionSettings, saved: saving.Saved, is_main: bool) -> int | None:
    """Return the number of rows of the input; None where it is unknown."""
    if settings.text or not is_main:
        return 1 if settings.text else None
    return unlabelled.count(
        settings.input, settings.format, settings.file_options(saved.content.file_options)["encoding"]
    )


@contextlib.contextmanager
def _opened(
    settings: commands.PredictionSettings, saved: saving.Saved
) -> Iterator[tuple[Iterable[unlabelled.Row], predictions_file.Output]]:
    """Lock the output and read the first row; yield the remaining rows and the output."""
    task = saved.content.task
    if settings.text:
        read = functools.partial(iter, [Example(unlabelled.parse_text(task, settings.text), label="", row=0)])
    else:
        encoding = settings.file_options(saved.content.file_options)["encoding"]
        read = functools.partial(
            unlabelled.read, task, settings.input, settings.format, encoding, settings.on_bad, settings.text_columns
        )
    plan = {"classifier": saved.digest, "output_format": settings.kind}
    names = ("probabilities", "max_error", "abstain", "reject_novel", "keep", "neighbours", "class_prior", "characters")
    plan |= {name: getattr(settings, name) for name in names}
    with predictions_file.opened(settings.output, plan, settings.overwrite) as output:
        remaining = output.unfinished(read, settings.input)
        first = next(remaining, None)
        if isinstance(first, errors.UserError):
            raise first
        if first is None:
            yield (), output
            return
        if not output.progress.bytes:
            output.progress.kept = _choose_columns(settings, first, task)
        yield itertools.chain([first], remaining), output


def _choose_columns(settings: commands.PredictionSettings, first: Example, task: Task) -> tuple[str, ...]:
    """Return the columns of the first row to copy; a line on standard error names those that are not copied."""
    is_ragged = unlabelled.kind_of(settings.input, settings.format) == "jsonl"
    kept = predictions_format.kept(settings.keep, first.extra, is_ragged)
    texts = settings.text_columns or task.fields
    rest = [name for name in first.extra if name not in (*kept, *texts)]
    if rest and settings.keep == commands.IDS:
        progress.note(f"columns not copied: {errors.join_names(rest)} (--keep=all copies them)")
    return kept


def _write(
    output: predictions_file.Output,
    form: predictions_format.Format,
    examples: Sequence[Example],
    predictions: Predictions,
) -> None:
    output.write(form.lines(examples, predictions), examples, predictions.outcomes)
