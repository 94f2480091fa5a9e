"""Run the grid of a table or figure: plan it, print its cost, run what is left of it."""

import collections
import dataclasses
import functools
import pathlib
import shlex
from collections.abc import Mapping, Sequence

import numpy as np

from knnprompt_jax import app, errors, lm, parallel, tables
from knnprompt_jax.methods import method
from knnprompt_jax.paper import cells as cells_lib
from knnprompt_jax.paper import experiment as experiment_lib
from knnprompt_jax.paper import experiments
from knnprompt_jax.runs import engine, inputs, records
from knnprompt_jax.runs import plan as plan_lib
from knnprompt_jax.settings import grids
from knnprompt_jax.settings.methods import CATALOGUE

_COLUMNS = ("model", "tasks", "passes", "distinct prompts", "tokens, about", "PFLOP, about", "records", "finished")


def run(settings: grids.GridSettings, dry_run: bool = False) -> None:
    """Print the plan and, unless it is a dry run, run what is left of it. Process 0 prints.

    Raises:
        UserError: invalid settings or rows, before anything runs; or the check of the finished records fails.
    """
    inputs.join_processes(settings.distributed)
    experiment = experiments.of(settings)
    if experiment.count:  # It counts tokens and needs no language model.
        text = f"Counts the tokens of {', '.join(settings.tasks)}; no language model runs."
        _print(text if dry_run else experiment.count(settings))
        return
    grid_plan = plan(settings, needs_weights=not dry_run)
    _print(grid_plan.describe())
    if not dry_run:
        _run_remaining(settings, experiment, grid_plan)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The runs of this shard, in groups that share their prompts.

    Attributes:
        all_groups: all groups of the shard, finished or not.
        groups: the groups that are left, with each distinct run once.
        copies: the other runs that are left, each with the file name of the record that has the same outcome.
        finished: finished records by file name.
        num_elsewhere: the number of records of other shards.
    """

    all_groups: Sequence[plan_lib.RunGroup]
    groups: Sequence[plan_lib.RunGroup]
    copies: Sequence[tuple[plan_lib.Run, str]]
    finished: Mapping[str, records.Record]
    num_elsewhere: int

    def describe(self) -> str:
        """Return a table of costs with a line for each model and one for all that is left."""
        by_model = collections.defaultdict(list)
        for group in self.all_groups:
            by_model[group.model.name].append(group)
        rows = [self._row(name, groups) for name, groups in by_model.items()]
        if self.groups:
            rows.append(self._row("left to run", self.groups))
        total = sum(len(group.runs) for group in self.all_groups)
        heading = f"{total} records, of which {len(self.finished)} are finished"
        if self.copies:
            heading += f" and {len(self.copies)} copy the result of an equal run"
        if self.num_elsewhere:
            heading += f"; {self.num_elsewhere} belong to other shards"
        return "\n".join([heading, "", tables.render(list(_COLUMNS), rows)])

    def _row(self, name: str, groups: Sequence[plan_lib.RunGroup]) -> list[str]:
        """Return the cells of a line, one for each of `_COLUMNS`."""
        runs = [run for group in groups for run in group.runs]
        counts = (
            len({run.problem.task.name for run in runs}),
            len(groups),
            sum(group.cost.prompts for group in groups),
            sum(group.cost.tokens for group in groups),
        )
        petaflops = 2e-15 * sum(group.work for group in groups)  # Two operations per parameter and token.
        num_finished = sum(run.file_name in self.finished for run in runs)
        return [
            name,
            *(f"{count:,}" for count in counts),
            f"{petaflops:,.3g}",
            f"{len(runs):,}",
            f"{num_finished:,}",
        ]


def plan(settings: grids.GridSettings, needs_weights: bool = True) -> Plan:
    """Plan a grid. Runs that differ only in their cell of the grid are run once.

    Args:
        settings: the grid.
        needs_weights: whether weight files are required; without them config.json and the tokenizer are enough.

    Raises:
        UserError: invalid settings or rows, or nothing to run.
    """
    groups = _groups(settings, needs_weights)
    if not groups:
        raise errors.UserError(
            f"{settings.experiment}: nothing to run with tasks={settings.tasks}, models={settings.models}, "
            f"methods={settings.methods}, seeds={settings.seeds}, shots={settings.shots + settings.few_shots}"
        )
    shard = _shard(groups, settings.shard_index, settings.num_shards)
    runs = [run for group in shard for run in group.runs]
    finished = records.finished(pathlib.Path(settings.output), runs)
    copies = _copies(runs, finished)
    left = _groups_left(shard, {*finished, *(run.file_name for run, _ in copies)})
    num_all = sum(len(group.runs) for group in groups)
    return Plan(shard, left, copies, finished, num_all - len(runs))


def _groups(settings: grids.GridSettings, needs_weights: bool) -> list[plan_lib.RunGroup]:
    """Return the groups of all models and tasks; raise UserError if a method cannot run on one of them."""
    task_rows = [inputs.load_rows(settings, name, count=settings.rows) for name in settings.tasks]
    groups = []
    for name in settings.models:
        model = inputs.read_model(name, settings, context=settings.context, needs_weights=needs_weights)
        for rows in task_rows:
            groups += plan_lib.group_runs(model, _runs(settings, model, rows))
    _check_methods(settings.methods, [run for group in groups for run in group.runs])
    return groups


def _runs(settings: grids.GridSettings, model: lm.LanguageModel, rows: inputs.Rows) -> list[plan_lib.Run]:
    """Return the run of each cell of a model and task. Cells with the same rows share a problem."""
    experiment = experiments.of(settings)
    cells = experiment.cells(settings, rows, inputs.max_demo_shots(rows, model))
    source = inputs.source_of(settings)

    @functools.cache
    def problem(draw: cells_lib.Draw, test_share: float | None) -> method.Problem:
        evaluation = cells_lib.evaluation(rows, test_share, draw.seed)
        return inputs.make_problem(settings, model, rows.task, cells_lib.split(rows, draw), evaluation)

    return [
        plan_lib.Run(
            cell.declared,
            cell.options(settings),
            problem(cell.draw, cell.test_share),
            model,
            settings.datastore,
            name=cell.method,
            experiment=settings.experiment,
            cell=dict(cell.axes),
            note=cells_lib.REUSED if cell.reuses_icl else "",
            source=source,
        )
        for cell in dict.fromkeys(cells)
    ]


def _check_methods(names: Sequence[str], runs: Sequence[plan_lib.Run]) -> None:
    """Raise UserError if a method does not apply to the problem of one of its runs."""
    obstacles: dict[str, str] = {}
    for run in runs:
        if obstacle := run.method.obstacle(run.problem, run.options):
            obstacles.setdefault(run.name, obstacle)
    if not obstacles:
        return
    message = "; ".join(f"method {name!r} does not apply: {reason}" for name, reason in obstacles.items())
    if applicable := [name for name in names if name not in obstacles]:
        message += f"; all others apply: --methods={','.join(applicable)}"
    raise errors.UserError(message)


def _shard(groups: Sequence[plan_lib.RunGroup], index: int, count: int) -> list[plan_lib.RunGroup]:
    """Return a contiguous part with about as much work as the others, so that few shards load the same model.

    It depends only on the whole plan: finished records move no pass to another shard.
    """
    if count == 1:
        return list(groups)
    work = np.array([max(1, group.work) for group in groups])
    middles = (np.cumsum(work) - work / 2) / work.sum()
    return [group for group, middle in zip(groups, middles, strict=True) if int(middle * count) == index]


def _copies(runs: Sequence[plan_lib.Run], finished: Mapping[str, records.Record]) -> list[tuple[plan_lib.Run, str]]:
    """Return the unfinished runs that copy an outcome: that of a finished equal run, or of the first equal run."""
    sources: dict[tuple[str, str], str] = {}
    copies = []
    bases = [
        run for run in runs if CATALOGUE[run.name].base == run.name
    ]  # Only these write maps, so they copy no preset.
    for some in (bases, [run for run in runs if run not in bases]):
        for run in some:
            if run.file_name in finished:
                sources.setdefault((run.key, run.note), run.file_name)
        for run in some:
            source = sources.setdefault((run.key, run.note), run.file_name)
            if run.file_name not in finished and run.file_name != source:
                copies.append((run, source))
    return copies


def _groups_left(groups: Sequence[plan_lib.RunGroup], excluded: set[str]) -> list[plan_lib.RunGroup]:
    """Return the groups without the runs of these file names; a group without any other run is left out."""
    runs_left = [tuple(run for run in group.runs if run.file_name not in excluded) for group in groups]
    return [dataclasses.replace(group, runs=runs) for group, runs in zip(groups, runs_left, strict=True) if runs]


def _run_remaining(settings: grids.GridSettings, experiment: experiment_lib.Experiment, grid_plan: Plan) -> None:
    """Run the groups that are left, write the copies, and print where the records are and what their check says."""
    output = pathlib.Path(settings.output)
    folder = output / settings.experiment
    write_files = functools.partial(experiment.before_writing, folder)
    made = dict(grid_plan.finished)
    for record in engine.run_groups(grid_plan.groups, output, settings.cache_gb, write_files):
        made[record.file_name] = record
    for run, file_name in grid_plan.copies:
        source = made[file_name]
        copied = dataclasses.replace(records.Record.of(run, source), environment=source.environment)
        parallel.call_in_main(functools.partial(records.write, folder, copied))
    _print(f"records: {folder}/; to see them: python experiments/report.py --records={shlex.quote(settings.output)}")
    if experiment.check and parallel.is_main():
        verdict = experiment.check(experiment.read(folder))
        if verdict.has_failed:
            raise errors.UserError(str(verdict))
        _print("\n  ".join(verdict.lines))


def _print(text: str) -> None:
    if parallel.is_main():
        app.show(text)
