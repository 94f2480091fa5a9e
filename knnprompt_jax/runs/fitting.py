"""A saved classifier from a table of one's own: the job of `building`, where the columns say what the task is."""

import dataclasses

from knnprompt_jax import errors
from knnprompt_jax import options as options_lib
from knnprompt_jax.classifier import options as knn_options
from knnprompt_jax.runs import building
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.tasks.task import Task


@dataclasses.dataclass(frozen=True)
class FitSettings(settings_lib.BuildSettings):
    """Options of building a classifier, with defaults for a table: all its rows, and its columns as the task."""

    train_file: str = options_lib.option("", "CSV, TSV, JSONL or Parquet file with a row for each text and its label.")
    task: str = options_lib.option(settings_lib.OWN, settings_lib.TASK_HELP, needed=True)
    shots: int = options_lib.option("all", "Train rows per class, or all.", least=1, words={"all": 0})
    demo_shots: int = options_lib.option(
        knn_options.AUTO,
        "Demonstrations per class among them; -1: as many as the context holds; auto: chosen among that or a quarter of the rows, 2 and 0.",
        least=-1,
        words={knn_options.AUTO: knn_options.AUTO},
    )
    knn: knn_options.KNNOptions | knn_options.RuleOptions = options_lib.group(knn_options.RuleOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.train_file or self.changes or self.task != settings_lib.OWN):
            raise errors.UserError(
                "train_file='': it is needed, or a change of a saved classifier (append, relabel, remove_ids)"
            )


def summarize(result: building.Result) -> str:
    """What the binary prints: a prompt, what `building.summarize` says, and what was chosen."""
    parts = [_prompt(result.classifier.task), building.summarize(result)]
    return "\n\n".join([*parts, *[str(result.classifier.choice_)] * bool(result.classifier.choice_.candidates)])


def _prompt(task: Task) -> str:
    """The task as a row becomes a prompt; a file that declares the task can say it better."""
    lines = "\n".join(f"    {line}" for line in task.template.splitlines())
    return f"each row becomes this prompt, which {' or '.join(task.label_words)} continues:\n\n{lines}"
