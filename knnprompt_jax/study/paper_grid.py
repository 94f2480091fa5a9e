"""Run the grid of a table or figure of the paper: plan it, print what is missing, run it."""

import functools
import itertools
import pathlib
import shlex

import numpy as np

from knnprompt_jax.cli import app
from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.common import errors, parallel
from knnprompt_jax.inference import lm
from knnprompt_jax.methods import method
from knnprompt_jax.report import records
from knnprompt_jax.study import engine, job_inputs, paper_experiment, paper_tables, task_statistics


def run(settings: grids.GridSettings) -> None:
    """Print which records exist and what is missing and, unless it is a dry run, run the rest. Process 0 prints.

    Raises:
        UserError: invalid settings or rows, before anything runs; or the check of the finished records fails.
    """
    parallel.start(**settings.distributed.to_dict())
    experiment = paper_tables.of(settings)
    if experiment.settings is grids.CountSettings:
        text = f"Counts the tokens of {', '.join(settings.tasks)}; no language model runs."
        _print(text if settings.dry_run else task_statistics.count(settings))
        return
    output = pathlib.Path(settings.output)
    groups = plan(settings, needs_weights=not settings.dry_run)
    finished = records.finished(output, (run for group in groups for run in group.runs))
    _print(describe(groups, finished))
    if settings.dry_run:
        return
    folder = output / settings.experiment
    before_writing = functools.partial(experiment.before_writing, folder)
    for _ in engine.run_groups(missing(groups, finished), output, settings.cache_gb, before_writing):
        pass
    _print(f"records: {folder}/; to see them: python experiments/report.py --records={shlex.quote(settings.output)}")
    if parallel.is_main() and (verdict := experiment.check(folder)):
        _print(verdict)


def plan(settings: grids.GridSettings, needs_weights: bool = True) -> list[engine.RunGroup]:
    """Return the runs of this shard, finished or not, in groups that share their prompts.

    A shard is a contiguous part of all groups, so that few shards load the same model.

    Args:
        settings: the grid.
        needs_weights: whether weight files are required; without them config.json and the tokenizer are enough.

    Raises:
        UserError: invalid settings or rows, a method that does not apply, or nothing to run.
    """
    task_rows = [job_inputs.load_rows(settings, name, count=settings.rows) for name in settings.tasks]
    groups = []
    for name in settings.models:
        model = job_inputs.read_model(name, settings, context=settings.context, needs_weights=needs_weights)
        for rows in task_rows:
            groups += engine.group_runs(_make_runs(settings, model, rows))
    if not groups:
        raise errors.UserError(f"{settings.experiment}: no shots, methods or seeds to run")
    index, count = grids.parse_shard(settings.shard)
    indices = np.array_split(np.arange(len(groups)), count)[index]
    return [groups[number] for number in indices]


def _make_runs(settings: grids.GridSettings, model: lm.LanguageModel, rows: job_inputs.Rows) -> list[engine.MethodRun]:
    """Return the run of each cell of a model and task; raise UserError if a method does not apply."""
    cells = paper_tables.of(settings).cells(settings, rows, job_inputs.max_demo_shots(rows, model))
    source = job_inputs.row_options(settings)

    @functools.cache
    def problem(draw: paper_experiment.Draw, test_share: float | None) -> method.Problem:
        evaluation = paper_experiment.evaluation(rows, test_share, draw.seed)
        split = paper_experiment.split(rows, draw)
        return method.Problem(rows.task, split, evaluation, model.tokenize, settings.label_token)

    runs = []
    for cell in dict.fromkeys(cells):
        run = engine.MethodRun(
            name=cell.method,
            method=cell.runs_as,
            options=cell.options(settings),
            problem=problem(cell.draw, cell.test_share),
            model=model,
            store_options=settings.datastore,
            experiment=settings.experiment,
            cell=dict(cell.axes),
            note=paper_experiment.REUSED if cell.reuses_icl else "",
            source=source,
        )
        if obstacle := run.method.obstacle(run.problem, run.options):
            raise errors.UserError(f"--methods: {run.name!r} does not apply to task {rows.task.name!r}: {obstacle}")
        runs.append(run)
    return runs


def missing(groups: list[engine.RunGroup], finished: dict[str, records.Record]) -> list[engine.RunGroup]:
    """Return the groups without their finished runs, and without groups that are finished."""
    runs_left = [tuple(run for run in group.runs if run.file_name not in finished) for group in groups]
    return [engine.RunGroup(runs) for runs in runs_left if runs]


def describe(groups: list[engine.RunGroup], finished: dict[str, records.Record]) -> str:
    """Return a line for each model: its records, and what is left to run."""
    lines = []
    for model, members in itertools.groupby(groups, lambda group: group.model):
        model_groups = list(members)
        left = missing(model_groups, finished)
        num_runs = sum(len(group.runs) for group in model_groups)
        num_missing = sum(len(group.runs) for group in left)
        num_prompts = sum(len(group.examples) for group in left)
        lines.append(
            f"{model.name}: {num_runs - num_missing} of {num_runs} records exist; {num_missing} are missing, with "
            f"{num_prompts:,} prompts in {len(left)} passes, besides the methods' own passes"
        )
    return "\n".join(lines)


def _print(text: str) -> None:
    if parallel.is_main():
        app.show(text)
