"""Run the grid of a table or figure: plan it, print its cost, run what is left of it."""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from knnprompt_jax import errors, parallel, tables
from knnprompt_jax.methods import method, registry
from knnprompt_jax.models import registry as models
from knnprompt_jax.paper import cells as cells_lib
from knnprompt_jax.paper import draws, experiments
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import engine, inputs, records
from knnprompt_jax.runs import run as run_lib

_COLUMNS = ("model", "tasks", "passes", "distinct prompts", "tokens, about", "PFLOP, about", "records", "finished")


def run(settings: settings_lib.GridSettings, dry_run: bool = False) -> None:
    """Print the plan and, unless it is a dry run, run what is left of it. Process 0 prints.

    Raises:
      UserError: anything that cannot work, before anything runs; or a check of the records that fails.
    """
    settings = inputs.resolved(settings)
    inputs.join(settings.distributed, settings.datastore)
    experiment = experiments.get(settings.experiment)
    if experiment.count:  # It counts tokens and needs no language model.
        text = f"{len(settings.task_names)} tasks to count tokens of, no language model"
        _print(text if dry_run else experiment.count(settings))
        return
    planned = plan(settings, weights=not dry_run)
    _print(planned.describe())
    if dry_run:
        return
    folder = pathlib.Path(settings.output) / settings.experiment
    made, mesh = dict(planned.finished), inputs.make_mesh(settings, settings.model_names)
    write_files = functools.partial(experiment.before_writing, folder)
    for record in engine.run(settings, planned.passes, mesh, before_writing=write_files):
        made[record.file_name] = record
    for source, run in planned.copies:
        parallel.call_in_main(functools.partial(records.write, folder, records.Record.of(run, made[source])))
    _print(f"records: {folder}/")
    if experiment.check and parallel.is_main():
        verdict = experiment.check(experiment.read(folder))
        if "FAIL" in verdict:
            raise errors.UserError(verdict)
        _print(verdict.replace("; ", "\n  "))


@dataclasses.dataclass(frozen=True)
class Plan:
    """The passes of this shard.

    Attributes:
      all_passes: all passes of the shard, finished or not.
      passes: the passes that are left, with each distinct run once.
      copies: the other runs that are left, each with the file name of the record whose outcome it shares.
      finished: finished records by file name.
      num_other: the number of records of other shards.
    """

    all_passes: Sequence[run_lib.Pass]
    passes: Sequence[run_lib.Pass]
    copies: Sequence[tuple[str, run_lib.Run]]
    finished: Mapping[str, records.Record]
    num_other: int

    def describe(self) -> str:
        """Return a table of costs with a line for each model and one for all that is left."""
        total = sum(len(planned.runs) for planned in self.all_passes)
        others = f"; {self.num_other} belong to other shards" if self.num_other else ""
        by_model = collections.defaultdict(list)
        for planned in self.all_passes:
            by_model[planned.model.short_name].append(planned)
        rows = [self._row(name, passes) for name, passes in by_model.items()]
        if self.passes:
            rows.append(self._row("left to run", self.passes))
        heading = f"{total} records, of which {len(self.finished)} are finished{others}"
        return "\n".join([heading, "", tables.render(list(_COLUMNS), rows)])

    def _row(self, name: str, passes: Sequence[run_lib.Pass]) -> list[str]:
        tasks = {planned.runs[0].problem.task.name for planned in passes}
        runs = [run for planned in passes for run in planned.runs]
        prompts, tokens = (sum(counts) for counts in zip(*(planned.cost for planned in passes), strict=True))
        flops = 2e-15 * sum(planned.work for planned in passes)  # Two operations per parameter and token.
        num_finished = sum(run.file_name in self.finished for run in runs)
        numbers = (len(tasks), len(passes), prompts, tokens)
        return [name, *(f"{number:,}" for number in numbers), f"{flops:,.3g}", f"{len(runs):,}", f"{num_finished:,}"]


def plan(settings: settings_lib.GridSettings, weights: bool = True) -> Plan:
    """Plan a grid. Runs that differ only in their place in the grid are run once.

    Args:
      weights: weight files are needed; without them config.json and the tokenizer are enough.

    Raises:
      UserError: anything that cannot work, or nothing to run.
    """
    passes = [planned for model, runs in _runs(settings, weights) for planned in run_lib.passes_of(model, runs)]
    if not passes:
        raise errors.UserError(
            f"{settings.experiment}: nothing to run with --tasks={settings.tasks} --models={settings.models} "
            f"--methods={settings.methods} --seeds={settings.seeds} --shots={settings.shots + settings.few_shots}"
        )
    shard = _shard(passes, *settings.shard_numbers)
    runs = [run for planned in shard for run in planned.runs]
    finished = records.finished(pathlib.Path(settings.output), runs)
    # The first run of equal ones, or a finished one, makes the outcome of all.
    sources = {(run.key, run.note): run.file_name for run in runs if run.file_name in finished}
    left, copies = [], []
    for planned in shard:
        missing = []
        for run in (run for run in planned.runs if run.file_name not in finished):
            source = sources.setdefault((run.key, run.note), run.file_name)
            if source == run.file_name:
                missing.append(run)
            else:
                copies.append((source, run))
        if missing:
            left.append(dataclasses.replace(planned, runs=tuple(missing)))
    num_all = sum(len(planned.runs) for planned in passes)
    return Plan(shard, left, copies, finished, num_all - len(runs))


def _runs(settings: settings_lib.GridSettings, weights: bool) -> Iterator[tuple[inputs.Model, list[run_lib.Run]]]:
    """Yield the runs of each model and task, then those of each model that a method trains."""
    experiment = experiments.get(settings.experiment)
    load = functools.partial(inputs.load_rows, settings, count=settings.rows)
    rows_of_tasks = [load(name) for name in settings.task_names]
    make = _run_maker(settings)
    if any(not registry.get(name).own_model for name in settings.method_names):
        for name in settings.model_names:
            model = inputs.load_model(name, settings.revision, weights=weights)
            for rows in rows_of_tasks:
                cells = experiment.cells_of(settings, rows, inputs.max_demo_shots(rows, model))
                yield model, [make(model, rows, cell) for cell in cells]
    trained = list(cells_lib.trained_cells(settings))
    for name in dict.fromkeys(cell.method for cell in trained):
        trained_model = getattr(settings.options, name).model
        try:
            model = inputs.load_model(trained_model, families=tuple(models.FAMILIES), of_prompts=False, weights=weights)
        except errors.UserError as error:
            advice = f"--options.{name}.model takes a folder; or leave {name} out of --methods"
            raise errors.UserError(f"{error}; {advice}") from None
        for rows in rows_of_tasks:
            yield model, [make(model, rows, cell) for cell in trained if cell.method == name]


def _run_maker(settings: settings_lib.GridSettings) -> Callable[..., run_lib.Run]:
    """Return a function that makes the run of a model, rows and a cell. Hundreds of cells share a problem."""
    compute, source = run_lib.compute_of(settings), run_lib.source_of(settings)
    prepared: set[str] = set()

    @functools.cache
    def problem_of(
        model: inputs.Model, rows: inputs.Rows, draw: draws.Draw, test_share: float | None
    ) -> method.Problem:
        return method.Problem(
            rows.task,
            draws.split(rows, draw),
            draws.evaluation(rows, test_share, draw.seed),
            model.tokenize,
            label_token=settings.label_token,
            truncation=settings.truncation,
            logit_cap=model.config.logit_cap,
        )

    def make(model: inputs.Model, rows: inputs.Rows, cell: cells_lib.GridCell) -> run_lib.Run:
        problem = problem_of(model, rows, cell.draw, cell.test_share)
        declared, options = cell.declared, cell.options(settings)
        registry.select([declared.name], problem)
        if (name := repr((declared.name, options))) not in prepared:
            declared.prepare(problem, options)
            prepared.add(name)
        return run_lib.Run(
            cell.method,
            declared,
            options,
            problem,
            model,
            compute,
            settings.datastore,
            experiment=settings.experiment,
            cell=dict(cell.axes),
            note=cells_lib.REUSED if cell.reuses_icl else "",
            source=source,
        )

    return make


def _shard(passes: Sequence[run_lib.Pass], index: int, count: int) -> list[run_lib.Pass]:
    """Return a contiguous part with about as much work as the others, so that few shards load the same model.

    It depends on the whole plan alone: finished records move no pass to another shard.
    """
    if count == 1:
        return list(passes)
    work = np.array([planned.work for planned in passes])
    middles = (np.cumsum(work) - work / 2) / work.sum()
    return [planned for planned, middle in zip(passes, middles, strict=True) if int(middle * count) == index]


def _print(text: str) -> None:
    if parallel.is_main():
        print(text, flush=True)
