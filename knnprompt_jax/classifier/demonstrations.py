"""Which rows become demonstrations: a few of each class, drawn by a seed; all others are anchors."""

import random
from collections.abc import Sequence

from knnprompt_jax import errors
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.prompts import statistics
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

_FEW = 2
_COUNTED = 2 * max(statistics.DEMO_SHOTS)  # Rows of a class that are enough to tell how many fit the context.


def draw(
    task: Task, examples: Sequence[Example], model: lm_lib.LanguageModel, shots: int | None, seed: int
) -> tuple[list[Example], list[Example]]:
    """Demonstrations in the order in which they are shown, and the other examples in theirs.

    A class gives `shots` rows, at most half of its own. None is as many as the model's context holds, by the paper's rule
    (`statistics.compute_m_t`); no demonstrations where even one per class makes too many prompts too long.

    Raises:
      UserError: there are no examples, or the number of shots is negative.
    """
    if not examples:
        raise errors.UserError("X is empty: at least one row is needed")
    if shots is None:
        shots = _most(task, examples, model)
    if shots < 0:
        raise errors.UserError(f"demo_shots={shots}: choose 0 (no demonstrations) or more")
    generator = random.Random(seed)
    by_class = splits.group_by_class(examples).values()
    shown = [example for members in by_class for example in generator.sample(members, min(shots, len(members) // 2))]
    generator.shuffle(shown)
    rows = {example.row for example in shown}
    return shown, [example for example in examples if example.row not in rows]


def numbers(task: Task, examples: Sequence[Example], model: lm_lib.LanguageModel) -> list[int]:
    """Numbers of demonstrations per class to choose from, as `up_to` what the context holds."""
    return up_to(_most(task, examples, model), examples) if examples else [0]


def up_to(most: int, examples: Sequence[Example]) -> list[int]:
    """As many, or what a quarter of the largest class is; a few; and none."""
    most = min(most, max(map(len, splits.group_by_class(examples).values())) // 4)
    return sorted({most, min(_FEW, most), 0}, reverse=True)


def _most(task: Task, examples: Sequence[Example], model: lm_lib.LanguageModel) -> int:
    counted = [example for members in splits.group_by_class(examples).values() for example in members[:_COUNTED]]
    limit = statistics.compute_m_t(task, counted, model.tokenize, model.context)
    return limit.m_t if round(100 * limit.truncated) <= statistics.MAX_TRUNCATION_PERCENT else 0
