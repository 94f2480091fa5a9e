"""The number of shots that fit in a context, and the other task statistics of the paper's appendix."""

import collections
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from knnprompt_jax.common import errors
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.inference.prompts.layout import Tokenize
from knnprompt_jax.tasks import catalogue, splits
from knnprompt_jax.tasks.task import Example, Task

NUM_DRAWS = 100
MAX_TRUNCATION_PERCENT = 5
DEMO_SHOTS = (1, 2, 4, 8, 16, 32)
LONGEST_PUBLISHED_CONTEXT = 2048
# Longer contexts hold hundreds of demonstrations. Each prompt would then have thousands of tokens before its query, and
# few train rows would remain as anchors. So M_T is capped.
SHOTS_IN_LONG_CONTEXTS = 2

_PUBLISHED_M_T = {  # By context, in the order of the paper's tasks.
    1024: (16, 8, 32, 2, 2, 8, 1, 8, 4, 8),
    2048: (32, 16, 32, 4, 4, 16, 1, 16, 8, 16),
}


class ShotLimit(NamedTuple):
    """The limit of demonstrations in a context.

    Attributes:
        max_shots: the maximum number per class.
        truncated: the share of prompts truncated at that number.
        m_t: M_T, the number that is used: a size of `DEMO_SHOTS`, at most `max_shots`.
    """

    max_shots: int
    truncated: float
    m_t: int


def paper_m_t(task_name: str, context: int) -> int | None:
    """Return the paper's M_T in demonstrations per class; None outside its tasks and contexts (1024 and 2048)."""
    if task_name not in catalogue.PAPER_TASKS or context not in _PUBLISHED_M_T:
        return None
    return _PUBLISHED_M_T[context][catalogue.PAPER_TASKS.index(task_name)]


def shot_limit(
    task: Task, train: Sequence[Example], tokenize: Tokenize, context: int, queries: Sequence[Example] | None = None
) -> ShotLimit:
    """Return the limit of shots per class: at most 5 % (rounded) of the prompts exceed the context.

    A prompt pairs a few-shot draw, seeds 0 to 99, with a query. At least one shot is allowed, however many prompts it
    truncates, as in the paper for DBPedia. M_T is the largest of 1, 2, 4, … 32 within the limit. Contexts longer than
    the paper's have the limit of its longest context, and M_T is at most 2.

    Args:
        task: gives the template.
        train: the train rows, from which demonstrations are drawn.
        tokenize: the model's tokenizer.
        context: the maximum number of tokens of a prompt.
        queries: the evaluation rows; by default the train rows.

    Raises:
        UserError: there is no train row.
    """
    counted = min(context, LONGEST_PUBLISHED_CONTEXT)
    limit = _limits(task, train, train if queries is None else queries, tokenize, [counted])[counted]
    if context <= LONGEST_PUBLISHED_CONTEXT:
        return limit
    return limit._replace(m_t=min(limit.m_t, SHOTS_IN_LONG_CONTEXTS))


def describe(
    task: Task, train: Sequence[Example], queries: Sequence[Example], tokenize: Tokenize, contexts: Sequence[int]
) -> list[dict[str, Any]]:
    """Return a row of statistics for each context; the average is over labelled train texts without final newline."""
    texts = [task.render(example, example.label).removesuffix("\n") for example in train]
    lengths = layout.count_tokens(tokenize, texts)
    row = {"task": task.name, "num_classes": task.num_classes, "average_template_tokens": float(np.mean(lengths))}
    limits = _limits(task, train, queries, tokenize, contexts)
    return [{**row, "context": context, **limit._asdict()} for context, limit in limits.items()]


def _limits(
    task: Task, train: Sequence[Example], queries: Sequence[Example], tokenize: Tokenize, contexts: Sequence[int]
) -> dict[int, ShotLimit]:
    if not train:
        raise errors.UserError(f"task {task.name!r}: it has no train rows")
    # + 1: in a prompt, the newline that ends a demonstration becomes a blank line of two tokens.
    demonstrations = layout.count_tokens(tokenize, [task.render(example, example.label) for example in train]) + 1
    by_class = collections.defaultdict(list)
    for example, length in zip(train, demonstrations.tolist(), strict=True):
        by_class[example.label].append(length)
    lengths = layout.count_tokens(tokenize, [task.render(query) for query in queries])
    query_lengths = np.sort(lengths + len(tokenize([""])[0]))  # Special tokens count.
    class_lengths = list(by_class.values())
    return {context: _limit(class_lengths, query_lengths, context) for context in contexts}


def _limit(class_lengths: list[list[int]], query_lengths: np.ndarray, context: int) -> ShotLimit:
    max_shots = 1
    truncated = _truncated_share(class_lengths, query_lengths, context, max_shots)
    for shots in range(2, max(map(len, class_lengths)) + 1):
        share = _truncated_share(class_lengths, query_lengths, context, shots)
        if round(100 * share) > MAX_TRUNCATION_PERCENT:
            break
        max_shots = shots
        truncated = share
    return ShotLimit(max_shots, truncated, m_t=max(size for size in DEMO_SHOTS if size <= max_shots))


def _truncated_share(class_lengths: list[list[int]], query_lengths: np.ndarray, context: int, shots: int) -> float:
    """Return the share of prompts longer than the context, over all pairs of a draw of demonstrations and a query."""
    draws = [sum(splits.sample_by_class(class_lengths, shots, random.Random(seed))) for seed in range(NUM_DRAWS)]
    fitting = np.searchsorted(query_lengths, context - np.array(draws), side="right")
    return 1 - float(fitting.mean()) / len(query_lengths)
