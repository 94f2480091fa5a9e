"""A table or figure from its settings to its records."""

from knnprompt_jax import parallel
from knnprompt_jax.paper import max_shots, plan, runner
from knnprompt_jax.paper import settings as settings_lib


def run(settings: settings_lib.GridSettings, dry_run: bool = False) -> None:
    """Prints the plan and, unless it is a dry run, runs it.

    Raises:
        UserError: on anything in the settings, the rows or the models that cannot work; nothing is run then.
    """
    parallel.start(
        settings.distributed_auto,
        settings.distributed_address,
        settings.distributed_num_processes,
        settings.distributed_process_id,
    )
    if settings.experiment == "max_shots":
        _count(settings, dry_run)
        return
    planned = plan.make(settings)
    _say(str(planned))
    if not dry_run:
        runner.run(planned)
        _say(f"records: {settings.output}/{settings.experiment}/")


def _count(settings: settings_lib.GridSettings, dry_run: bool) -> None:
    """Task statistics need no language model, hence no plan."""
    if dry_run:
        _say(f"max_shots: {len(settings.task_names)} tasks to count tokens of, no language model")
    elif parallel.is_main():
        _say(max_shots.summarize(max_shots.run(settings)))


def _say(text: str) -> None:
    if parallel.is_main():
        print(text, flush=True)
