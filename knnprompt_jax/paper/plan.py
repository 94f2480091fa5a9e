"""From grids' settings to passes: what the language model reads together, what it costs, and what is done already.

Grids that are planned together share their passes: a prompt that several of them have is read once, and runs that differ in nothing
but the table they belong to are one run with several records.
"""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
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
_COLUMNS = ("grid", "model", "tasks", "passes", "prompts", "tokens, about", "PFLOP, about", "records", "there already")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The passes of this shard that are still to do, model by model.

    Attributes:
      passes: what is to be read, each run once.
      equals: for the name of a run's record, the drafts of records that are equal to it but for their table and cell.
      copies: records that are there, each with the draft of an equal one that is not.
      lines: what the grids cost, one by one, and all together, as the rows of a table.
    """

    passes: tuple[passes_lib.Pass, ...]
    equals: Mapping[str, Sequence[records.Record]]
    copies: Sequence[tuple[records.Record, records.Record]]
    lines: Sequence[Sequence[str]]
    told: str

    def __str__(self) -> str:
        return f"{self.told}\n\n{tables.render(_COLUMNS, list(map(list, self.lines)))}"


class Planner:
    """Plans grids. Rows and models that several have are loaded once; no weights are.

    Without `weights`, as for a dry run, a model needs no more than its config.json and its tokenizer.
    """

    def __init__(self, weights: bool = True):
        self._rows: dict[tuple, material.Rows] = {}
        self._model = functools.cache(functools.partial(material.load_model, weights=weights))
        self._most = functools.cache(material.max_demo_shots)
        self._checked: set[str] = set()

    def plan(self, grids: Sequence[settings_lib.GridSettings]) -> Plan:
        """The plan of grids whose options differ only in what they run; raises UserError on anything that cannot work, and where
        there is nothing to run."""
        groups: dict[tuple, list[passes_lib.Run]] = collections.defaultdict(list)
        for grid in grids:
            for model, rows, runs in self._subjects(grid):
                groups[model, rows] += runs
        if not groups:
            first = grids[0]
            raise errors.UserError(
                f"{', '.join(grid.experiment for grid in grids)}: nothing to run with tasks={first.tasks!r}, "
                f"models={first.models!r}, methods={first.methods!r}, seeds={first.seeds}, shots={first.shots + first.few_shots}"
            )
        by_model = sorted(
            groups.items(), key=lambda item: list(dict.fromkeys(key[0] for key in groups)).index(item[0][0])
        )
        together = [passes_lib.together(key[0], runs) for key, runs in by_model]
        shard = _shard([each for passes in together for each in passes], *grids[0].shard_numbers)
        return _left(shard, pathlib.Path(grids[0].output), sum(map(len, groups.values())), grids)

    def _subjects(
        self, settings: settings_lib.GridSettings
    ) -> Iterator[tuple[material.Model, material.Rows, list[passes_lib.Run]]]:
        """Each model with each task and its runs; then each model that a method trains."""
        experiment, all_rows = (
            experiments.get(settings.experiment),
            [self._load(settings, name) for name in settings.task_names],
        )
        if any(not registry.get(name).own_model for name in settings.method_names):
            for name in settings.model_names:
                model = self._model(name, settings.revision)
                for rows in all_rows:
                    cells = experiment.cells_of(settings, rows, self._most(rows, model))
                    yield from self._runs(settings, model, rows, cells)
        trained = list(cells_lib.trained_cells(settings))
        for name in dict.fromkeys(cell.method for cell in trained):
            weights = getattr(settings.options, name).model
            model = self._model(weights, families=tuple(models.FAMILIES), of_prompts=False)
            for rows in all_rows:
                yield from self._runs(settings, model, rows, [cell for cell in trained if cell.method == name])

    def _load(self, settings: settings_lib.GridSettings, name: str) -> material.Rows:
        key = name, settings.split, settings.rows, settings.restore_dropped, settings.drop_duplicates
        if key not in self._rows:
            rows = material.load_rows(settings, name)
            self._rows[key] = material.Rows(rows.task, rows.train, rows.evaluation[: settings.rows or None])
        return self._rows[key]

    def _runs(
        self,
        settings: settings_lib.GridSettings,
        model: material.Model,
        rows: material.Rows,
        cells: Sequence[cells_lib.GridCell],
    ) -> Iterator[tuple[material.Model, material.Rows, list[passes_lib.Run]]]:
        if cells:
            yield model, rows, [self._run(settings, model, rows, cell) for cell in cells]

    def _run(
        self, settings: settings_lib.GridSettings, model: material.Model, rows: material.Rows, cell: cells_lib.GridCell
    ) -> passes_lib.Run:
        problem = method.Problem(
            rows.task,
            draws.split(rows, cell.draw),
            draws.evaluation(rows, cell.test_share, cell.draw.seed),
            model.tokenize,
            label_token=settings.label_token,
            logit_cap=model.config.logit_cap,
        )
        declared, options = cell.declared, cell.options(settings)
        registry.select([declared.name], problem)
        if (key := repr((declared.name, options))) not in self._checked:
            declared.prepare(problem, options)
            self._checked.add(key)
        fields: dict[str, Any] = {"experiment": settings.experiment, "cell": dict(cell.axes)}
        fields["note"] = cells_lib.REUSED if cell.reuses_icl else ""
        decisive = {name: getattr(settings, name) for name in _DECISIVE}
        return passes_lib.draft(decisive, model, rows, cell.method, declared, options, problem, **fields)


def _left(
    shard: Sequence[passes_lib.Pass], output: pathlib.Path, total: int, grids: Sequence[settings_lib.GridSettings]
) -> Plan:
    """What is left of a shard's passes, equal runs put together."""
    done: dict[str, records.Record] = {}
    drafts = [run.record for each in shard for run in each.runs]
    for grid in grids:
        own = [draft for draft in drafts if draft.experiment == grid.experiment]
        done |= records.finished(output / grid.experiment, own)
    passes, equals, copies = [], {}, []
    for each in shard:
        runs = []
        for first, *others in _equal(each.runs):
            alike = [first, *others]
            there = next((done[run.record.name] for run in alike if run.record.name in done), None)
            missing = [run.record for run in alike if run.record.name not in done]
            if there:
                copies += [(there, draft) for draft in missing]
            else:
                runs.append(first)
                equals[first.record.name] = missing[1:]
        if runs:
            passes.append(dataclasses.replace(each, runs=tuple(runs)))
    elsewhere = f" and {total - len(drafts)} are other shards'" if total > len(drafts) else ""
    names = ", ".join(grid.experiment for grid in grids)
    told = f"{names}: {total} records, of which {len(done)} are there already{elsewhere}"
    return Plan(tuple(passes), equals, copies, list(_lines(shard, passes, done, grids)), told)


def _equal(runs: Sequence[passes_lib.Run]) -> list[list[passes_lib.Run]]:
    """The runs of a pass, those together that differ in nothing but their table and cell; a case study stays on its own."""
    groups: dict[Any, list[passes_lib.Run]] = {}
    for run in runs:
        split, record = run.problem.split, run.record
        drawn = (
            tuple(row.row for row in part) for part in (split.demonstrations, split.anchors, run.problem.evaluation)
        )
        own = record.name if experiments.get(record.experiment).writes_beside else ""
        key = (*drawn, record.method, record.shots, record.demo_shots, record.note, run.method, repr(run.settings), own)
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def _shard(planned: Sequence[passes_lib.Pass], index: int, count: int) -> list[passes_lib.Pass]:
    """A contiguous part, so that few shards load the same model, with about as much work as the others.

    It depends on the whole plan alone: what is done already moves no pass to another shard.
    """
    if count == 1:
        return list(planned)
    work = np.array([each.work for each in planned])
    middles = (np.cumsum(work) - work / 2) / work.sum()
    return [each for each, middle in zip(planned, middles, strict=True) if int(middle * count) == index]


def _lines(
    shard: Sequence[passes_lib.Pass],
    left: Sequence[passes_lib.Pass],
    done: Mapping[str, records.Record],
    grids: Sequence[settings_lib.GridSettings],
) -> Iterator[list[str]]:
    """What each grid costs with each model on its own, done or not; and what is left of all together."""
    for grid in grids:
        by_model = collections.defaultdict(list)
        for each in shard:
            if runs := tuple(run for run in each.runs if run.record.experiment == grid.experiment):
                by_model[each.model.short_name].append(dataclasses.replace(each, runs=runs))
        for name, passes in by_model.items():
            there = sum(run.record.name in done for each in passes for run in each.runs)
            yield _line(grid.experiment, name, passes, there)
    if left:
        yield _line("left to do, together", "", left, 0)


def _line(grid: str, model: str, planned: Sequence[passes_lib.Pass], there: int) -> list[str]:
    """A line of the plan; two operations per parameter and token."""
    tasks = {read.runs[0].problem.task.name for read in planned}
    prompts, tokens = (sum(counts) for counts in zip(*(read.cost for read in planned), strict=True))
    runs = sum(len(read.runs) for read in planned)
    numbers = (f"{number:,}" for number in (len(tasks), len(planned), prompts, tokens))
    return [grid, model, *numbers, f"{2e-15 * sum(read.work for read in planned):,.3g}", f"{runs:,}", f"{there:,}"]
