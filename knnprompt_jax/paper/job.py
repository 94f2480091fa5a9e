"""Tables and figures from their settings to their records."""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence

from jax.sharding import Mesh

from knnprompt_jax import errors, parallel
from knnprompt_jax.methods import method
from knnprompt_jax.paper import costs, experiments, paces, per_model, plan, planner, whole
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import engine, records


def run(settings: settings_lib.GridSettings, dry_run: bool = False) -> None:
    """Prints the plan and, unless it is a dry run, runs what is left to do of it; of several processes, the first prints.

    A dry run's plan has hours: it reads a few prompts with each model whose weights are here (see `paces`).

    Of all grids, those that have something to check run first, on their own; the others share their passes, where their models run
    with the same dtype, batch and mesh.

    Raises UserError on anything that cannot work, before anything runs, and where a check fails.
    """
    grids = whole.grids(settings) if isinstance(settings, whole.WholeSettings) else [settings]
    per_model.check(grids, settings.per_model)
    engine.join(settings)
    counted = [grid for grid in grids if experiments.get(grid.experiment).count]
    checked = [grid for grid in grids if experiments.get(grid.experiment).check]
    others = [grid for grid in grids if grid not in counted and grid not in checked]
    planned_by = planner.Planner(weights=not dry_run)
    if dry_run:
        for grid in counted:
            _say(f"{grid.experiment}: {len(grid.task_names)} tasks to count tokens of, no language model")
        for part in per_model.split([*checked, *others], settings.per_model):
            left = planned_by.plan(part)
            _say(costs.render(left, part, paces.of_models(part[0], left.whole, _mesh(part))))
        return
    # All mistakes show before anything runs.
    parts = [
        (part, planned_by.plan(part), _mesh(part))
        for kind in (checked, others)
        for part in per_model.split(kind, settings.per_model)
    ]
    for part, left, mesh in parts:
        _say(costs.render(left, part))
        _carry_out(part, left, mesh)
        _check(part)
    for grid in counted:
        _count(grid)


def _mesh(grids: Sequence[settings_lib.GridSettings]) -> Mesh:
    """Of the devices, for all models of grids that run alike."""
    return engine.make_mesh(grids[0], list(dict.fromkeys(name for grid in grids for name in grid.model_names)))


def _carry_out(grids: Sequence[settings_lib.GridSettings], left: plan.Plan, mesh: Mesh) -> None:
    """Runs passes and writes every record of theirs; several tables may have a record of the same run."""
    output = pathlib.Path(grids[0].output)
    for record, draft in left.copies:
        parallel.call_in_main(functools.partial(_copy, output, record, draft))
    for record in engine.run(grids[0], left.passes, mesh, output, before_writing=functools.partial(_beside, output)):
        for draft in left.equals[record.name]:
            parallel.call_in_main(functools.partial(_copy, output, record, draft))
    for grid in grids:
        _say(f"records: {output / grid.experiment}/")


def _beside(output: pathlib.Path, record: records.Record, context: method.Context) -> None:
    experiments.get(record.experiment).before_writing(output / record.experiment, record, context)


def _copy(output: pathlib.Path, record: records.Record, draft: records.Record) -> None:
    """Writes the record of a run for another table of which it is a part too."""
    records.write(output / draft.experiment, dataclasses.replace(record, experiment=draft.experiment, cell=draft.cell))


def _check(grids: Sequence[settings_lib.GridSettings]) -> None:
    """Says what the records are checked for; raises UserError where the check fails."""
    for grid in grids:
        experiment = experiments.get(grid.experiment)
        if experiment.check and parallel.is_main():
            verdict = experiment.check(experiment.read(pathlib.Path(grid.output) / grid.experiment))
            if "FAIL" in verdict:
                raise errors.UserError(verdict)
            _say(verdict.replace("; ", "\n  "))


def _count(settings: settings_lib.GridSettings) -> None:
    count = experiments.get(settings.experiment).count
    if count and parallel.is_main():
        print(count(settings), flush=True)


def _say(text: str) -> None:
    if parallel.is_main():
        print(text, flush=True)
