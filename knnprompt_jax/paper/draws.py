"""Which rows a cell is made of: the published draws, all rows as demonstrations, and draws with one class rare."""

import collections
import dataclasses
import functools
import random
from collections.abc import Sequence

from knnprompt_jax import errors
from knnprompt_jax.runs import material
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task


@dataclasses.dataclass(frozen=True)
class Draw:
    """`shots` train rows per class, `demo_shots` of them demonstrations: all of them, or fewer, or none.

    With a `share`, the task's last class has that share of the rows drawn, whose number stays as it is.
    """

    seed: int
    shots: int
    demo_shots: int
    share: float | None = None


@functools.cache
def split(rows: material.Rows, draw: Draw) -> splits.FewShotSplit:
    """The rows of a draw.

    Without anchors, all shots are demonstrations. With a share, the demonstrations stay balanced where there are anchors.

    Raises:
        UserError: the task has too few rows, or a share is asked for where there are not two classes.
    """
    if draw.share is None:
        return _balanced(rows, draw)
    task, all_shown = rows.task, draw.demo_shots == draw.shots
    check_binary(task)
    drawn = draw.shots if all_shown else draw.shots - draw.demo_shots
    rare = max(1, round(draw.share * task.num_classes * drawn))
    common = task.num_classes * drawn - rare
    shown = common if all_shown else draw.demo_shots
    balanced = _balanced(rows, Draw(draw.seed, shown if all_shown else shown + common, shown))
    if all_shown:
        return _replaced(balanced, thin(balanced.demonstrations, task.labels[-1], rare), (), draw)
    return _replaced(balanced, balanced.demonstrations, thin(balanced.anchors, task.labels[-1], rare), draw)


def _balanced(rows: material.Rows, draw: Draw) -> splits.FewShotSplit:
    all_shown = draw.demo_shots == draw.shots
    drawn = splits.draw(rows.train, rows.task, shots=draw.shots + all_shown, demo_shots=draw.demo_shots, seed=draw.seed)
    return _replaced(drawn, drawn.demonstrations, (), draw) if all_shown else drawn


def _replaced(
    drawn: splits.FewShotSplit, demonstrations: Sequence[Example], anchors: Sequence[Example], draw: Draw
) -> splits.FewShotSplit:
    shown, kept = (collections.Counter(row.label for row in part) for part in (demonstrations, anchors))
    counts = {
        label: splits.ClassCounts(old.train, shown[label], kept[label]) for label, old in drawn.class_counts.items()
    }
    return dataclasses.replace(
        drawn,
        demonstrations=tuple(demonstrations),
        anchors=tuple(anchors),
        shots=draw.shots,
        demo_shots=draw.demo_shots,
        class_counts=counts,
        warnings=(),
    )


def evaluation(rows: material.Rows, share: float | None, seed: int) -> Sequence[Example]:
    """The rows to classify; with a share, as many rows of the last class are left out at random as makes it so rare."""
    if share is None:
        return rows.evaluation
    check_binary(rows.task)
    label = rows.task.labels[-1]
    members = [place for place, row in enumerate(rows.evaluation) if row.label == label]
    others = len(rows.evaluation) - len(members)
    kept = max(1, min(len(members), round(others * share / (1 - share))))
    left_out = set(members) - set(random.Random(seed).sample(members, kept))
    return [row for place, row in enumerate(rows.evaluation) if place not in left_out]


def thin(rows: Sequence[Example], label: str, count: int) -> list[Example]:
    """The rows but for those of one label after its first `count`."""
    seen, kept = 0, []
    for row in rows:
        seen += row.label == label
        if row.label != label or seen <= count:
            kept.append(row)
    return kept


def check_binary(task: Task) -> None:
    """Raises UserError unless the task has two classes, as every task has of which one class can be made rare."""
    if task.num_classes != 2:
        raise errors.UserError(f"task {task.name!r} has {task.num_classes} classes: choose tasks of two classes")
