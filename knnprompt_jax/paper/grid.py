"""Run the grid of a table or figure: plan it, print its cost, run what is left of it."""

import collections
import dataclasses
import functools
import pathlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np
from jax.sharding import Mesh

from knnprompt_jax import app, errors, lm, parallel, tables
from knnprompt_jax.methods import method, registry
from knnprompt_jax.models import registry as models
from knnprompt_jax.models import tokenizers
from knnprompt_jax.paper import cells as cells_lib
from knnprompt_jax.paper import experiments
from knnprompt_jax.runs import engine, inputs, records
from knnprompt_jax.runs import run as run_lib
from knnprompt_jax.settings import grids
from knnprompt_jax.store import store as store_lib

_COLUMNS = ("model", "tasks", "passes", "distinct prompts", "tokens, about", "PFLOP, about", "records", "finished")


def run(settings: grids.GridSettings, dry_run: bool = False) -> None:
    """Print the plan and, unless it is a dry run, run what is left of it. Process 0 prints.

    Raises:
      UserError: anything that cannot work, before anything runs; or a check of the records that fails.
    """
    inputs.join_processes(settings.distributed)
    store_lib.check_processes(settings.datastore)
    experiment = experiments.EXPERIMENTS[settings.experiment]
    if experiment.count:  # It counts tokens and needs no language model.
        text = f"{len(settings.tasks)} tasks to count tokens of, no language model"
        _print(text if dry_run else experiment.count(settings))
        return
    planned = plan(settings, weights=not dry_run)
    _print(planned.describe())
    if dry_run:
        return
    folder = pathlib.Path(settings.output) / settings.experiment
    made = dict(planned.finished)
    write_files = functools.partial(experiment.before_writing, folder)
    for record in engine.run(planned.passes, pathlib.Path(settings.output), settings.cache_gb, write_files):
        made[record.file_name] = record
    for source, run in planned.copies:
        copied = dataclasses.replace(records.Record.of(run, made[source]), environment=made[source].environment)
        parallel.call_in_main(functools.partial(records.write, folder, copied))
    _print(f"records: {folder}/; to see them: python experiments/report.py --records={shlex.quote(settings.output)}")
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
      num_elsewhere: the number of records of other shards.
    """

    all_passes: Sequence[run_lib.Pass]
    passes: Sequence[run_lib.Pass]
    copies: Sequence[tuple[str, run_lib.Run]]
    finished: Mapping[str, records.Record]
    num_elsewhere: int

    def describe(self) -> str:
        """Return a table of costs with a line for each model and one for all that is left."""
        total = sum(len(planned.runs) for planned in self.all_passes)
        elsewhere = f"; {self.num_elsewhere} belong to other shards" if self.num_elsewhere else ""
        by_model = collections.defaultdict(list)
        for planned in self.all_passes:
            by_model[planned.model.name].append(planned)
        rows = [self._row(name, passes) for name, passes in by_model.items()]
        if self.passes:
            rows.append(self._row("left to run", self.passes))
        copied = f" and {len(self.copies)} copy the result of an equal run" if self.copies else ""
        heading = f"{total} records, of which {len(self.finished)} are finished{copied}{elsewhere}"
        return "\n".join([heading, "", tables.render(list(_COLUMNS), rows)])

    def _row(self, name: str, passes: Sequence[run_lib.Pass]) -> list[str]:
        tasks = {planned.runs[0].problem.task.name for planned in passes}
        runs = [run for planned in passes for run in planned.runs]
        prompts, tokens = (sum(counts) for counts in zip(*(planned.cost for planned in passes), strict=True))
        flops = 2e-15 * sum(planned.work for planned in passes)  # Two operations per parameter and token.
        num_finished = sum(run.file_name in self.finished for run in runs)
        numbers = (len(tasks), len(passes), prompts, tokens)
        return [name, *(f"{number:,}" for number in numbers), f"{flops:,.3g}", f"{len(runs):,}", f"{num_finished:,}"]


def plan(settings: grids.GridSettings, weights: bool = True) -> Plan:
    """Plan a grid. Runs that differ only in their place in the grid are run once.

    Args:
      weights: weight files are needed; without them config.json and the tokenizer are enough.

    Raises:
      UserError: anything that cannot work, or nothing to run.
    """
    passes = [planned for model, runs in _runs(settings, weights) for planned in run_lib.passes_of(model, runs)]
    if not passes:
        raise errors.UserError(
            f"{settings.experiment}: nothing to run with tasks={settings.tasks}, models={settings.models}, "
            f"methods={settings.methods}, seeds={settings.seeds}, shots={settings.shots + settings.few_shots}"
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


def _runs(settings: grids.GridSettings, weights: bool) -> list[tuple[lm.LanguageModel, list[run_lib.Run]]]:
    """Return the runs of each model and task, then those of each model that a method trains."""
    task_rows = [inputs.load_rows(settings, name, count=settings.rows) for name in settings.tasks]
    trained = [name for name in settings.methods if registry.get(name).own_model]
    experiment = experiments.EXPERIMENTS[settings.experiment]
    found: list[tuple[lm.LanguageModel, list[run_lib.Run]]] = []
    obstacles: dict[str, str] = {}
    source = inputs.source_of(settings)

    @functools.cache  # Hundreds of cells share a problem.
    def problem_of(
        model: lm.LanguageModel, rows: inputs.Rows, draw: cells_lib.Draw, share: float | None
    ) -> method.Problem:
        split, evaluation = cells_lib.split(rows, draw), cells_lib.evaluation(rows, share, draw.seed)
        return inputs.make_problem(settings, model, rows.task, split, evaluation)

    def runs_of(names: Sequence[str], model: lm.LanguageModel, rows: inputs.Rows, most: int) -> Iterator[run_lib.Run]:
        """Yield the runs of a task; add each method that does not apply, and why, to `obstacles`."""
        for cell in dict.fromkeys(experiment.cells(settings, names, rows, most)):
            problem = problem_of(model, rows, cell.draw, cell.test_share)
            declared, options = cell.declared, cell.options(settings)
            if obstacle := declared.obstacle(problem, options):
                obstacles.setdefault(cell.method, obstacle)
                continue
            yield run_lib.Run(
                *(declared, options, problem, model, settings.datastore),
                name=cell.method,
                experiment=settings.experiment,
                cell=dict(cell.axes),
                note=cells_lib.REUSED if cell.reuses_icl else "",
                source=source,
            )

    if prompted := [name for name in settings.methods if name not in trained]:
        for name in settings.models:
            model = inputs.read_model(name, settings, context=settings.context, needs_weights=weights)
            for rows in task_rows:
                found.append((model, list(runs_of(prompted, model, rows, inputs.max_demo_shots(rows, model)))))
    for name in trained:
        trained_model = registry.get(name).options(settings).model
        try:
            families = tuple(models.FAMILIES)
            config, path = models.describe(trained_model, families, weights)
            tokenizer = tokenizers.load(path, False, config.vocab_size)
            model = lm.LanguageModel(
                config, tokenizer, _load_nothing, name=trained_model, path=path, needs_weights=weights
            )
        except errors.UserError as error:
            advice = f"--{name}.model takes a folder; or leave {name} out of --methods"
            raise errors.UserError(f"{error}; {advice}") from None
        found += [(model, list(runs_of([name], model, rows, 0))) for rows in task_rows]
    if obstacles:
        reasons = "; ".join(f"method {name!r} does not apply: {reason}" for name, reason in obstacles.items())
        applicable = ",".join(name for name in settings.methods if name not in obstacles)
        raise errors.UserError(reasons + (f"; all others apply: --methods={applicable}" if applicable else ""))
    return found


def _load_nothing(mesh: Mesh) -> NoReturn:
    raise AssertionError("a method that trains a model loads it itself")


def _shard(passes: Sequence[run_lib.Pass], index: int, count: int) -> list[run_lib.Pass]:
    """Return a contiguous part with about as much work as the others, so that few shards load the same model.

    It depends on the whole plan alone: finished records move no pass to another shard.
    """
    if count == 1:
        return list(passes)
    work = np.array([max(1, planned.work) for planned in passes])
    middles = (np.cumsum(work) - work / 2) / work.sum()
    return [planned for planned, middle in zip(passes, middles, strict=True) if int(middle * count) == index]


def _print(text: str) -> None:
    if parallel.is_main():
        app.show(text)
