"""From a grid's settings to passes: what the language model reads together, what it costs, and what is done already."""

import collections
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors, tables
from knnprompt_jax.methods import method, registry
from knnprompt_jax.models import registry as models
from knnprompt_jax.paper import cells as cells_lib
from knnprompt_jax.paper import draws, experiments
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import material, records
from knnprompt_jax.runs import passes as passes_lib

_DECISIVE = ("split", "rows", "restore_dropped", "drop_duplicates", "label_token", "dtype", "revision", "hub")
_COLUMNS = ("model", "tasks", "passes", "prompts", "tokens, about", "records")


@dataclasses.dataclass(frozen=True)
class GridPlan:
    """The passes of this shard that are still to do, by model; records in all and those there are already."""

    settings: settings_lib.GridSettings
    passes: tuple[passes_lib.Pass, ...]
    num_records: int
    num_done: int
    num_other_shards: int

    def __str__(self) -> str:
        by_model = collections.defaultdict(list)
        for planned in self.passes:
            by_model[planned.model.short_name].append(planned)
        rows = [_row(name, of_model) for name, of_model in by_model.items()]
        if len(rows) > 1:
            rows.append(_row("all", self.passes))
        others = f" and {self.num_other_shards} are other shards'" if self.num_other_shards else ""
        told = f"{self.settings.experiment}: {self.num_records} records, of which {self.num_done} are there already{others}"
        return f"{told}\n\n{tables.render(_COLUMNS, rows)}" if rows else told


def make(settings: settings_lib.GridSettings) -> GridPlan:
    """Plans a grid; no weights are loaded; raises UserError on anything that cannot work, and where there is nothing to run."""
    checked: set[str] = set()
    planned = [each for subject in _subjects(settings) for each in subject.passes(settings, checked)]
    if not planned:
        raise errors.UserError(
            f"{settings.experiment}: nothing to run with tasks={settings.tasks!r}, models={settings.models!r}, "
            f"methods={settings.methods!r}, seeds={settings.seeds}, shots={settings.shots + settings.few_shots}"
        )
    shard = _shard(planned, *settings.shard_numbers)
    folder = pathlib.Path(settings.output) / settings.experiment
    done = records.finished(folder, [run.record for each in shard for run in each.runs])
    left = [
        dataclasses.replace(each, runs=runs)
        for each in shard
        if (runs := tuple(run for run in each.runs if run.record.name not in done))
    ]
    total, in_shard = (sum(len(each.runs) for each in some) for some in (planned, shard))
    return GridPlan(settings, tuple(left), total, len(done), total - in_shard)


@dataclasses.dataclass(frozen=True)
class _Subject:
    """A task and a model with their cells; where methods train models of their own, `model` is one of these."""

    rows: material.Rows
    model: material.Model
    cells: Sequence[cells_lib.Cell]

    def passes(self, settings: settings_lib.GridSettings, checked: set[str]) -> list[passes_lib.Pass]:
        """The cells put together by their demonstrations; `checked` holds methods and options that have been tried."""
        return passes_lib.together(self.model, [self._run(settings, cell, checked) for cell in self.cells])

    def _run(self, settings: settings_lib.GridSettings, cell: cells_lib.Cell, checked: set[str]) -> passes_lib.Run:
        problem = method.Problem(
            self.rows.task,
            draws.split(self.rows, cell.draw),
            draws.evaluation(self.rows, cell.test_share, cell.draw.seed),
            self.model.tokenize,
            label_token=settings.label_token,
            logit_cap=self.model.config.logit_cap,
        )
        declared, options = cell.declared, cell.options(settings)
        registry.select([declared.name], problem)
        if (key := repr((declared.name, options))) not in checked:
            declared.prepare(problem, options)
            checked.add(key)
        fields: dict[str, Any] = {"experiment": settings.experiment, "cell": dict(cell.axes)}
        fields["note"] = cells_lib.REUSED if cell.reuses_icl else ""
        decisive = {name: getattr(settings, name) for name in _DECISIVE}
        return passes_lib.draft(decisive, self.model, self.rows, cell.method, declared, options, problem, **fields)


def _subjects(settings: settings_lib.GridSettings) -> Iterator[_Subject]:
    """Each task with each model and its cells, model by model; then each with each model that a method trains."""
    experiment = experiments.get(settings.experiment)
    loaded = [material.load_rows(settings, name) for name in settings.task_names]
    all_rows = [material.Rows(rows.task, rows.train, rows.evaluation[: settings.rows or None]) for rows in loaded]
    if any(not registry.get(name).own_model for name in settings.method_names):
        for name in settings.model_names:
            model = material.load_model(name, settings.revision)
            for rows in all_rows:
                most = material.max_demo_shots(rows, model)
                yield _Subject(rows, model, experiment.cells_of(settings, rows, most))
    trained = list(cells_lib.trained_cells(settings))
    for name in dict.fromkeys(cell.method for cell in trained):
        weights = getattr(settings.options, name).model
        model = material.load_model(weights, families=tuple(models.FAMILIES), of_prompts=False)
        for rows in all_rows:
            yield _Subject(rows, model, [cell for cell in trained if cell.method == name])


def _shard(planned: Sequence[passes_lib.Pass], index: int, count: int) -> list[passes_lib.Pass]:
    """A contiguous part, so that few shards load the same model, with about as much work as the others.

    It depends on the whole grid alone: what is done already moves no pass to another shard.
    """
    work = np.array([each.work for each in planned])
    middles = (np.cumsum(work) - work / 2) / work.sum()
    return [each for each, middle in zip(planned, middles, strict=True) if int(middle * count) == index]


def _row(name: str, planned: Sequence[passes_lib.Pass]) -> list[str]:
    """A line of the plan."""
    tasks = {read.runs[0].problem.task.name for read in planned}
    prompts, tokens = (sum(counts) for counts in zip(*(read.cost for read in planned), strict=True))
    runs = sum(len(read.runs) for read in planned)
    return [name, *(f"{number:,}" for number in (len(tasks), len(planned), prompts, tokens, runs))]
