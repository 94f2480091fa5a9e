"""Label a file of rows with a saved classifier; an interrupted run can be resumed."""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from knnprompt_jax.classifier import classifier_file
from knnprompt_jax.classifier.arguments import Predictions
from knnprompt_jax.classifier.confidence import novelty, selective
from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.commands import predictions_file, unlabelled
from knnprompt_jax.common import errors, files, parallel
from knnprompt_jax.inference import states
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.tasks.task import Example

_NOT_IN_JOB = {"classifier", "input", "output", "overwrite", "cache_gb", "distributed"}
"""Options that do not change the predictions of a classifier for an input."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """The counts and the time of a run.

    Attributes:
        outcomes: the number of rows that the run labelled, by outcome.
        earlier: the number of rows of the input that earlier runs finished; 0 except in process 0.
        seconds: the time of the run without the loading of the model.
    """

    outcomes: collections.Counter[str]
    earlier: int
    seconds: float


def run(settings: commands.PredictionSettings) -> Summary:
    """Label all rows, or the rows that an interrupted run did not finish. Memory does not grow with their number.

    Only process 0 reads the input and writes the output. Every process reads its share of each batch's prompts.

    Raises:
        UserError: the classifier, the input or the model does not exist; the output exists, cannot be written or is
            written by another process; the error rate cannot be promised; or a row is bad.
    """
    parallel.start(**settings.distributed.to_dict())
    saved = classifier_file.read(pathlib.Path(settings.classifier)).with_prior(settings.prior)
    if settings.max_error is not None and saved.content.choice:
        selective.certify(*saved.content.kept_predictions(), settings.max_error)  # Refused before the model loads.
    if settings.reject_novel is not None:
        novelty.check_threshold(settings.reject_novel, saved.content.num_novelty_rows)
    mesh = inputs.choose_saved_mesh(settings.mesh, saved.content.model)
    outcomes: collections.Counter[str] = collections.Counter()
    with parallel.enter_in_main(_open(settings, saved)) as opened:
        rows, total, output, form = opened or ((), None, predictions_file.StandardOutput(), None)
        fitted = saved.restore(saved.load_model(mesh))
        least = 0.0 if settings.max_error is None else selective.certify(*fitted.held_out(), settings.max_error)
        cache = None if settings.text else states.open_disk_cache(settings.cache_gb, is_capped=True)
        earlier = output.rows
        started = time.monotonic()
        for examples, readings in unlabelled.read_batches(fitted, rows, cache, total, earlier):
            predictions = fitted.answer(readings, settings.neighbours).abstaining(least)
            predictions = predictions.rejecting(fitted.novelty(readings), settings.reject_novel)
            parallel.call_in_main(functools.partial(_write, output, form, examples, predictions))
            outcomes.update(predictions.outcomes)
        parallel.call_in_main(output.finish)
    return Summary(outcomes, earlier, time.monotonic() - started)


@contextlib.contextmanager
def _open(settings: commands.PredictionSettings, saved: classifier_file.Saved) -> Iterator[tuple[Any, ...]]:
    """Lock the output and read the input once, so that a bad row of a file is refused before the model loads.

    Yields:
        The rows that are not finished, the number of all rows (None if unknown), the output and its format.
    """
    task = saved.content.task
    table = settings.table(settings.input)
    total = unlabelled.count_rows(table, task)
    rows = iter([unlabelled.parse_text(task, settings.text)]) if settings.text else table.unlabelled(task)
    first = next(rows, None)
    rows = itertools.chain([first] if first else [], rows)
    classes = sorted(saved.content.labels)
    copied = _copied_columns(settings.keep, first)
    form = predictions_file.Format(settings.kind, classes, copied, settings.probabilities, settings.neighbours)
    if settings.output == commands.STANDARD:
        yield rows, total, predictions_file.StandardOutput(), form
        return
    path = pathlib.Path(settings.output)
    options = {name: value for name, value in settings.to_dict().items() if name not in _NOT_IN_JOB}
    content = json.dumps([saved.digest, unlabelled.digest_input(settings.input), options])
    job = hashlib.sha256(content.encode()).hexdigest()
    with files.lock(path):
        output = predictions_file.FileOutput(path, job, form.header(), settings.overwrite)
        yield (row for row in rows if row.row >= output.rows), total, output, form


def _write(
    output: predictions_file.StandardOutput, form: Any, examples: list[Example], predictions: Predictions
) -> None:
    """Write the predictions of a batch."""
    output.write(form.lines(examples, predictions), examples[-1].row + 1)


def _copied_columns(keep: tuple[str, ...] | None, first: Example | None) -> tuple[str, ...]:
    """Return the columns to copy, by default those of the first row that are named like ids.

    Raises:
        UserError: a given column is missing in the first row.
    """
    if keep is None:
        return tuple(first.ids) if first else ()
    columns = first.extra if first else keep
    if missing := [name for name in keep if name not in columns]:
        raise errors.UserError(f"--keep={missing[0]}: no such column; choose from {errors.join_names(columns)}")
    return keep
