"""From a grid's settings to passes: what the language model reads together, what it costs, and what is done already."""

import collections
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils

from knnprompt_jax import errors, tables
from knnprompt_jax.paper import cells, subjects
from knnprompt_jax.paper import passes as passes_lib
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import records

_COLUMNS = ("model", "tasks", "passes", "prompts", "tokens, about", "records")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The passes of this shard that are still to do, by model; records in all and those there are already."""

    settings: settings_lib.GridSettings
    passes: tuple[passes_lib.Pass, ...]
    num_records: int
    num_done: int
    num_other_shards: int

    def __str__(self) -> str:
        by_model = collections.defaultdict(list)
        for one in self.passes:
            by_model[one.subject.model.short_name].append(one)
        rows = [_row(name, own) for name, own in by_model.items()]
        if len(rows) > 1:
            rows.append(_row("all", self.passes))
        others = f" and {self.num_other_shards} are other shards'" if self.num_other_shards else ""
        told = f"{self.settings.experiment}: {self.num_records} records, of which {self.num_done} are there already{others}"
        return f"{told}\n\n{tables.render(_COLUMNS, rows)}" if rows else told


def make(settings: settings_lib.GridSettings) -> Plan:
    """Plans a grid; no weights are loaded.

    Raises:
        UserError: on anything in the settings, the rows or the models that cannot work, or where there is nothing to run.
    """
    checked: set[str] = set()
    planned = [
        one for subject, own in _subjects(settings) for one in passes_lib.of_subject(settings, subject, own, checked)
    ]
    if not planned:
        raise errors.UserError(
            f"{settings.experiment}: nothing to run with tasks={settings.tasks!r}, models={settings.models!r}, "
            f"methods={settings.methods!r}, seeds={settings.seeds}, shots={settings.shots + settings.few_shots}"
        )
    shard = _shard(planned, *settings.shard_numbers)
    folder = pathlib.Path(settings.output) / settings.experiment
    missing = _missing(folder, [run.record for one in shard for run in one.runs])
    left = [
        dataclasses.replace(one, runs=runs)
        for one in shard
        if (runs := tuple(run for run in one.runs if run.record.name in missing))
    ]
    total, own = (sum(len(one.runs) for one in some) for some in (planned, shard))
    return Plan(settings, tuple(left), total, own - len(missing), total - own)


def _subjects(settings: settings_lib.GridSettings) -> Iterator[tuple[subjects.Subject, list[cells.Cell]]]:
    """Each task with each model and its cells, model by model; then each with each model that a method trains."""
    all_rows = [subjects.load_rows(settings, name) for name in settings.task_names]
    trained = list(cells.trained_cells(settings))
    if any(not cells.without_language_model(name) for name in settings.method_names):
        for name in settings.model_names:
            model = subjects.load_model(name, settings.revision)
            for rows in all_rows:
                subject = subjects.make_subject(settings, rows, model)
                yield subject, list(dict.fromkeys(cells.enumerate_cells(settings, rows, subject.most)))
    for name in dict.fromkeys(cell.method for cell in trained):
        model = subjects.trained_model(settings, name)
        for rows in all_rows:
            own = [cell for cell in trained if cell.method == name]
            yield subjects.Subject(rows, model, settings.label_token), own


def _shard(planned: Sequence[passes_lib.Pass], index: int, count: int) -> list[passes_lib.Pass]:
    """A contiguous part, so that few shards load the same model, with about as much work as the others.

    It depends on the whole grid alone: what is done already moves no pass to another shard.
    """
    work = np.array([one.work for one in planned])
    middles = (np.cumsum(work) - work / 2) / work.sum()
    return [one for one, middle in zip(planned, middles, strict=True) if int(middle * count) == index]


def _missing(folder: pathlib.Path, drafts: Sequence[records.Record]) -> set[str]:
    """Names of the records that are not there yet; of several processes, the first looks for all."""
    missing = np.array([not (folder / draft.name).exists() for draft in drafts], bool)
    if jax.process_count() > 1:
        missing = multihost_utils.broadcast_one_to_all(missing)
    return {draft.name for draft, is_missing in zip(drafts, missing, strict=True) if is_missing}


def _row(name: str, planned: Sequence[passes_lib.Pass]) -> list[str]:
    """A line of the plan."""
    costs = [one.cost for one in planned]
    tasks = {one.subject.rows.task.name for one in planned}
    numbers = [
        sum(cost.prompts for cost in costs),
        sum(cost.tokens for cost in costs),
        sum(len(one.runs) for one in planned),
    ]
    return [name, str(len(tasks)), f"{len(planned):,}", *(f"{number:,}" for number in numbers)]
