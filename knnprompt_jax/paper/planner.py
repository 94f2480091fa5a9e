"""From grids' settings to passes: what the language model reads together.

Grids that are planned together share their passes: a prompt that several of them have is read once, and runs that differ in nothing
but the table they belong to are one run with several records.
"""

import collections
import functools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax import options as options_lib
from knnprompt_jax.methods import method, registry
from knnprompt_jax.models import registry as models
from knnprompt_jax.paper import cells as cells_lib
from knnprompt_jax.paper import draws, experiments
from knnprompt_jax.paper import plan as plan_lib
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import material
from knnprompt_jax.runs import passes as passes_lib


class Planner:
    """Plans grids. Rows and models that several have are loaded once; no weights are.

    Without `weights`, as for a dry run, a model needs no more than its config.json and its tokenizer.
    """

    def __init__(self, weights: bool = True):
        self._rows: dict[tuple, material.Rows] = {}
        self._model = functools.cache(functools.partial(material.load_model, weights=weights))
        self._most = functools.cache(material.max_demo_shots)
        self._problem = functools.cache(_problem)  # What a problem knows of its label words, it finds out once.
        self._checked: set[str] = set()

    def plan(self, grids: Sequence[settings_lib.GridSettings]) -> plan_lib.Plan:
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
        return plan_lib.left(shard, pathlib.Path(grids[0].output), sum(map(len, groups.values())), grids)

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
            model = self._trained(name, getattr(settings.options, name).model)
            for rows in all_rows:
                yield from self._runs(settings, model, rows, [cell for cell in trained if cell.method == name])

    def _trained(self, name: str, weights: str) -> material.Model:
        """The model that a method trains."""
        try:
            return self._model(weights, families=tuple(models.FAMILIES), of_prompts=False)
        except errors.UserError as error:
            way_out = f"options.{name}.model takes a folder; without {name} among the methods it is not needed"
            raise errors.UserError(f"{error}; {way_out}") from None

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
        problem = self._problem(model, rows, cell.draw, cell.test_share, settings.label_token, settings.truncation)
        declared, options = cell.declared, cell.options(settings)
        registry.select([declared.name], problem)
        if (key := repr((declared.name, options))) not in self._checked:
            declared.prepare(problem, options)
            self._checked.add(key)
        fields: dict[str, Any] = {"experiment": settings.experiment, "cell": dict(cell.axes)}
        fields["note"] = cells_lib.REUSED if cell.reuses_icl else ""
        return passes_lib.draft(
            options_lib.decisive(settings), model, rows, cell.method, declared, options, problem, **fields
        )


def _problem(
    model: material.Model,
    rows: material.Rows,
    draw: draws.Draw,
    test_share: float | None,
    label_token: str,
    truncation: str,
) -> method.Problem:
    return method.Problem(
        rows.task,
        draws.split(rows, draw),
        draws.evaluation(rows, test_share, draw.seed),
        model.tokenize,
        label_token=label_token,
        truncation=truncation,
        logit_cap=model.config.logit_cap,
    )


def _shard(planned: Sequence[passes_lib.Pass], index: int, count: int) -> list[passes_lib.Pass]:
    """A contiguous part, so that few shards load the same model, with about as much work as the others.

    It depends on the whole plan alone: what is done already moves no pass to another shard.
    """
    if count == 1:
        return list(planned)
    work = np.array([each.work for each in planned])
    middles = (np.cumsum(work) - work / 2) / work.sum()
    return [each for each, middle in zip(planned, middles, strict=True) if int(middle * count) == index]
