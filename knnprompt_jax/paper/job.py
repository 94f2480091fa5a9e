"""A table or figure from its settings to its records."""

import functools
import pathlib

from knnprompt_jax import parallel
from knnprompt_jax.paper import experiments, plan
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import engine


def run(settings: settings_lib.GridSettings, dry_run: bool = False) -> None:
    """Prints the plan and, unless it is a dry run, runs what is left to do of it; of several processes, the first prints.

    Raises UserError on anything that cannot work, before anything runs.
    """
    mesh, experiment = engine.start(settings), experiments.get(settings.experiment)
    if experiment.count and not dry_run:
        if parallel.is_main():
            print(experiment.count(settings), flush=True)
        return
    if experiment.count:
        _say(f"{experiment.name}: {len(settings.task_names)} tasks to count tokens of, no language model")
        return
    planned = plan.make(settings)
    _say(str(planned))
    if not dry_run:
        folder = pathlib.Path(settings.output) / experiment.name
        before_writing = functools.partial(experiment.before_writing, folder)
        for _ in engine.run(settings, planned.passes, mesh, folder, before_writing=before_writing):
            pass  # Each record is written as it comes.
        _say(f"records: {folder}/")


def _say(text: str) -> None:
    if parallel.is_main():
        print(text, flush=True)
