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

    Raises UserError where the task has too few rows, or a share but not two classes.
    """
    shown, kept = draw.demo_shots, draw.shots - draw.demo_shots
    rare = 0
    if draw.share is not None:
        check_binary(rows.task)
        skewed = rows.task.num_classes * (kept or shown)
        rare = max(1, round(draw.share * skewed))
        shown, kept = (shown, skewed - rare) if kept else (skewed - rare, 0)
    drawn = splits.draw(rows.train, rows.task, shots=shown + max(1, kept), demo_shots=shown, seed=draw.seed)
    if kept and not rare:
        return drawn
    demonstrations, anchors = drawn.demonstrations, drawn.anchors if kept else ()
    if rare and kept:
        anchors = thin(anchors, rows.task.labels[-1], rare)
    elif rare:
        demonstrations = thin(demonstrations, rows.task.labels[-1], rare)
    counts = [collections.Counter(row.label for row in part) for part in (demonstrations, anchors)]
    return dataclasses.replace(
        drawn,
        demonstrations=demonstrations,
        anchors=anchors,
        shots=draw.shots,
        demo_shots=draw.demo_shots,
        class_counts={
            label: splits.ClassCounts(old.train, *(count[label] for count in counts))
            for label, old in drawn.class_counts.items()
        },
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


def thin(rows: Sequence[Example], label: str, count: int) -> tuple[Example, ...]:
    """The rows but for those of one label after its first `count`."""
    left_out = {id(row) for row in [row for row in rows if row.label == label][count:]}
    return tuple(row for row in rows if id(row) not in left_out)


def check_binary(task: Task) -> None:
    """Raises UserError unless the task has two classes, as every task has of which one class can be made rare."""
    if task.num_classes != 2:
        raise errors.UserError(f"task {task.name!r} has {task.num_classes} classes: choose tasks of two classes")
