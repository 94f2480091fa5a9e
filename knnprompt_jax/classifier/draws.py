"""Draws of demonstrations and anchors from the rows of a fit. A few new rows rarely change a draw."""

import collections
import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import logging

from knnprompt_jax import errors, lm
from knnprompt_jax.classifier.classifier_options import AUTO
from knnprompt_jax.experts import folds, views
from knnprompt_jax.prompts import statistics
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

_COUNTED = 2 * max(statistics.DEMO_SHOTS)  # Rows of a class that suffice to count how many fit the context.


class Draw(NamedTuple):
    """Demonstrations in the order of the prompt, anchors in the order of the rows, and the labels with few rows."""

    demonstrations: tuple[Example, ...]
    anchors: tuple[Example, ...]
    small: tuple[str, ...]

    @property
    def shots(self) -> int:
        """The demonstrations of the class that has the most."""
        return max(collections.Counter(row.label for row in self.demonstrations).values(), default=0)


def draw(rows: Sequence[Example], demo_shots: int, seed: int) -> Draw:
    """Draw `demo_shots` demonstrations per class, at most half of a class; all other rows are anchors.

    Each class gives the rows that come first in `folds.ranked`.
    """
    sizes = collections.Counter(row.label for row in rows)
    small = [label for label, size in sizes.items() if size // 2 < demo_shots]
    order = folds.ranked(rows, seed)
    drawn = folds.first_of_each(rows, order, {label: min(demo_shots, size // 2) for label, size in sizes.items()})
    is_drawn = set(drawn)
    anchors = tuple(row for index, row in enumerate(rows) if index not in is_drawn)
    return Draw(tuple(rows[index] for index in drawn), anchors, tuple(small))


def first_rows(rows: Sequence[Example], shots: int, seed: int) -> list[Example]:
    """Draw `shots` rows per class, or all rows of a smaller class; return them in their own order."""
    return [rows[index] for index in sorted(folds.first_of_each(rows, folds.ranked(rows, seed), shots))]


def draw_published(
    task: Task, rows: Sequence[Example], model: lm.LanguageModel, demo_shots: Any, seed: int, k: int
) -> Draw:
    """Draw the demonstrations of `KNNPrompting`; warn if a class has too few rows.

    Raises:
        UserError: an invalid number, or fewer than k anchors.
    """
    is_chosen = demo_shots is None
    drawn = draw(rows, max_demo_shots(task, rows, model) if is_chosen else check_shots(demo_shots), seed)
    if drawn.small and not is_chosen:
        logging.warning(
            "demo_shots=%d: at most half of a class become demonstrations, so these have fewer: %s",
            demo_shots,
            errors.join_names(drawn.small),
        )
    check_k(k, len(drawn.anchors))
    return drawn


def check_k(k: int, num_anchors: int) -> None:
    """Raise UserError unless there are k anchors."""
    if k > num_anchors:
        raise errors.UserError(f"k={k}: there are {num_anchors} anchors; choose k ≤ {num_anchors}")


def view_shots(
    task: Task, rows: Sequence[Example], model: lm.LanguageModel, demo_shots: Any, seed: int
) -> tuple[int, ...]:
    """Return the numbers of demonstrations per class of the views, in descending order.

    Args:
        demo_shots: a number, several, None for M_T (`max_demo_shots`), or "auto".

    Raises:
        UserError: an invalid number.
    """
    if demo_shots == AUTO:
        return views.default_numbers(task, rows, model.count_tokens, model.context, seed)
    is_several = isinstance(demo_shots, list | tuple) and len(demo_shots) > 0
    largest = max(collections.Counter(row.label for row in rows).values())
    found = set()
    for number in demo_shots if is_several else [demo_shots]:
        shots = max_demo_shots(task, rows, model) if number is None else check_shots(number)
        found.add(min(shots, largest) if len(rows) > 1 else 0)
    return tuple(sorted(found, reverse=True))


def check_shots(demo_shots: Any) -> int:
    """Return a number of demonstrations per class; raise UserError if it is none."""
    if isinstance(demo_shots, bool) or not isinstance(demo_shots, numbers.Integral) or demo_shots < 0:
        raise errors.UserError(f"demo_shots={demo_shots!r}: choose None, or a whole number from 0 (no demonstrations)")
    return int(demo_shots)


def max_demo_shots(task: Task, rows: Sequence[Example], model: lm.LanguageModel) -> int:
    """Return M_T, how many demonstrations per class the context holds (`statistics.shot_limit`).

    Unlike `study.job_inputs.max_demo_shots`, which repeats the paper, it is 0 if even one demonstration per class makes
    too many prompts too long. It counts only the first rows of a class, so that appended rows do not change it.
    """
    counted = [row for members in splits.group_by_class(rows).values() for row in members[:_COUNTED]]
    limit = statistics.shot_limit(task, counted, model.tokenize, model.context)
    return limit.m_t if round(100 * limit.truncated) <= statistics.MAX_TRUNCATION_PERCENT else 0
