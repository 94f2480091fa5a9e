"""Draws of demonstrations and anchors from the rows of a fit. A few new rows rarely change a draw."""

import collections
import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import logging

from knnprompt_jax import errors, lm, rules
from knnprompt_jax.prompts import statistics
from knnprompt_jax.settings.classifiers import AUTO
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

_FEW = 2
_COUNTED = 2 * max(statistics.DEMO_SHOTS)  # Rows of a class that suffice to count how many fit the context.


class Draw(NamedTuple):
    """Demonstrations in the order of the prompt, and anchors in the order of the rows."""

    demonstrations: tuple[Example, ...]
    anchors: tuple[Example, ...]


def draw(rows: Sequence[Example], demo_shots: int, seed: int) -> Draw:
    """Draw `demo_shots` demonstrations per class, at most half of a class; all other rows are anchors.

    Each class gives the rows that come first in `rules.ranked`.
    """
    sizes = collections.Counter(row.label for row in rows)
    missing = {label: min(demo_shots, size // 2) for label, size in sizes.items()}
    drawn = _take_first(rows, missing, seed)
    demonstrations = tuple(rows[index] for index in drawn)
    is_drawn = set(drawn)
    return Draw(demonstrations, tuple(row for index, row in enumerate(rows) if index not in is_drawn))


def first_rows(rows: Sequence[Example], shots: int, seed: int) -> list[Example]:
    """Draw `shots` rows per class, or all rows of a smaller class; return them in their own order."""
    missing = dict.fromkeys((row.label for row in rows), shots)
    return [rows[index] for index in sorted(_take_first(rows, missing, seed))]


def _take_first(rows: Sequence[Example], counts: dict[str, int], seed: int) -> list[int]:
    """Return the indices of the first rows of each class in `rules.ranked`; `counts` has the number for each label."""
    missing = dict(counts)
    taken = []
    for index in rules.ranked(rows, seed):
        label = rows[index].label
        if missing[label]:
            missing[label] -= 1
            taken.append(index)
    return taken


def candidates(
    task: Task, rows: Sequence[Example], model: lm.LanguageModel, options: Any, k: int | None
) -> dict[int, Draw]:
    """Return a draw for each candidate number of demonstrations per class, preferred numbers first.

    Args:
        options: the options of a classifier; their `demo_shots` are a number, several, None for as many as the context
            holds, or "auto".
        k: the number of anchors that every draw needs, if it is known.

    Raises:
        UserError: no draw has k anchors, or a number is invalid.
    """
    drawn: dict[int, Draw] = {}
    for number in _numbers(task, rows, model, options.demo_shots):
        drawing = draw(rows, number, options.random_state)
        # By the number that the classes have: several requested numbers may give one draw.
        drawn.setdefault(_shots_of(drawing.demonstrations), drawing)
    max_k = max(len(drawing.anchors) for drawing in drawn.values())
    if k is not None and k > max_k:
        raise errors.UserError(f"k={k}: there are {max_k} anchors; choose k ≤ {max_k}")
    return {shots: drawing for shots, drawing in drawn.items() if len(drawing.anchors) >= (k or 1)}


def _numbers(task: Task, rows: Sequence[Example], model: lm.LanguageModel, demo_shots: Any) -> list[int]:
    """Return the candidate numbers of demonstrations per class."""
    if demo_shots == AUTO:
        return _automatic_numbers(max_demo_shots(task, rows, model), rows)
    is_several = isinstance(demo_shots, list | tuple) and demo_shots
    numbers_given = []
    for number in demo_shots if is_several else [demo_shots]:
        if number is None:
            numbers_given.append(max_demo_shots(task, rows, model))
            continue
        if isinstance(number, bool) or not isinstance(number, numbers.Integral) or number < 0:
            raise errors.UserError(f"demo_shots={number!r}: choose None, or a whole number from 0 (no demonstrations)")
        _warn_if_few(rows, int(number))
        numbers_given.append(int(number))
    return numbers_given


def _automatic_numbers(limit: int, rows: Sequence[Example]) -> list[int]:
    """Return M_T, at most a quarter of the largest class, then 2 and 0; powers of two rarely change with the rows."""
    largest = max(collections.Counter(row.label for row in rows).values())
    largest_number = max((size for size in statistics.DEMO_SHOTS if size <= min(limit, largest // 4)), default=0)
    return sorted({largest_number, min(_FEW, largest_number), 0}, reverse=True)


def max_demo_shots(task: Task, rows: Sequence[Example], model: lm.LanguageModel) -> int:
    """Return M_T, how many demonstrations per class the context holds, by the paper's rule (`statistics.compute_m_t`).

    0 if even one per class makes too many prompts too long.
    """
    counted = [row for members in splits.group_by_class(rows).values() for row in members[:_COUNTED]]
    limit = statistics.compute_m_t(task, counted, model.tokenize, model.context)
    return limit.m_t if round(100 * limit.truncated) <= statistics.MAX_TRUNCATION_PERCENT else 0


def _warn_if_few(rows: Sequence[Example], demo_shots: int) -> None:
    """Log a warning if half of a class is fewer than the requested demonstrations."""
    small = [label for label, size in collections.Counter(row.label for row in rows).items() if size // 2 < demo_shots]
    if small:
        logging.warning(
            "demo_shots=%d: at most half of a class become demonstrations, so these have fewer: %s",
            demo_shots,
            errors.join_names(small),
        )


def _shots_of(demonstrations: Sequence[Example]) -> int:
    """Return the demonstrations of the class that has the most."""
    return max(collections.Counter(example.label for example in demonstrations).values(), default=0)
