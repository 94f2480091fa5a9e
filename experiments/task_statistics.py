"""Prints the task statistics of the paper's appendix: classes, template tokens, and the shots that a context holds.

python experiments/task_statistics.py --data_dir=data --tokenizer=<folder of GPT-2>
"""

import pathlib
import sys

from absl import app, flags

from knnprompt_jax import errors
from knnprompt_jax.models import tokenizers
from knnprompt_jax.prompts import layout, statistics
from knnprompt_jax.tasks import catalogue, sources

_DATA_DIR = flags.DEFINE_string("data_dir", None, "Folder of task folders in the published layout.", required=True)
_TOKENIZER = flags.DEFINE_string("tokenizer", None, "Folder of the tokenizer to count with.", required=True)
_TASKS = flags.DEFINE_list("tasks", list(catalogue.PAPER_TASKS), "Tasks to describe.")
_CONTEXTS = flags.DEFINE_list("contexts", ["1024", "2048"], "Context lengths in tokens.")
_EVAL_SPLIT = flags.DEFINE_string("eval_split", "dev_subsample", "Split whose rows are the queries.")
_RESTORE_DROPPED = flags.DEFINE_bool("restore_dropped", True, "Put the rows of train_dropped.jsonl back into train.")


def main(argv: list[str]) -> None:
    del argv
    try:
        run()
    except errors.UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def run() -> None:
    tasks = [catalogue.get(name) for name in _TASKS.value]
    contexts = _contexts()
    tokenize = layout.tokenize_with(tokenizers.load(pathlib.Path(_TOKENIZER.value)))
    print("M_T in brackets: the paper's")
    print(
        " | ".join(["task   ", "classes", "tokens", *(f"{context:5d}: max shots   M_T     " for context in contexts)])
    )
    for task in tasks:
        train = sources.load_rows(task, "train", data_dir=_DATA_DIR.value, restore_dropped=_RESTORE_DROPPED.value)
        queries = sources.load_rows(task, _EVAL_SPLIT.value, data_dir=_DATA_DIR.value)
        described = statistics.describe(task, train, queries, tokenize, contexts)
        cells = [_cell(task.name, context, limit) for context, limit in described.limits.items()]
        tokens = f"{described.average_template_tokens:6.1f}"
        print(" | ".join([f"{task.name:7}", f"{described.num_classes:7d}", tokens, *cells]), flush=True)


def _contexts() -> list[int]:
    try:
        return [int(context) for context in _CONTEXTS.value]
    except ValueError:
        raise errors.UserError(f"--contexts={','.join(_CONTEXTS.value)}: whole numbers are needed") from None


def _cell(task_name: str, context: int, limit: statistics.ShotLimit) -> str:
    published = statistics.max_shots_in_context(task_name, context)
    return f"{limit.max_shots:6d} ({100 * limit.truncated:3.0f} %)   {limit.m_t:3d} [{published or '-':>2}]"


if __name__ == "__main__":
    app.run(main)
