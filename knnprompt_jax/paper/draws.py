"""Draws of train rows: the published draws, all rows as demonstrations, and draws in which one class is rare."""

import collections
import dataclasses
import functools
import random
from collections.abc import Sequence

from knnprompt_jax import errors
from knnprompt_jax.runs import inputs
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task


@dataclasses.dataclass(frozen=True)
class Draw:
    """A draw of `shots` train rows per class, `demo_shots` of them demonstrations: all, some or none.

    With a `share`, the task's last class has that share of all rows drawn, demonstrations included; the number of all rows
    stays the same.
    """

    seed: int
    shots: int
    demo_shots: int
    share: float | None = None


@functools.cache
def split(rows: inputs.Rows, draw: Draw) -> splits.FewShotSplit:
    """Return the rows of a draw.

    Without anchors, all shots are demonstrations. With a share and anchors, the demonstrations stay balanced, and the rare
    class has at least one anchor.

    Raises:
      UserError: the task has too few rows, or there is a share but the task does not have two classes.
    """
    demo_shots, anchor_shots = draw.demo_shots, draw.shots - draw.demo_shots
    drawn_shots, num_rare = draw.shots, None
    if draw.share is not None:
        check_binary(rows.task)
        num_rare = max(1, round(draw.share * rows.task.num_classes * draw.shots))
        drawn_shots = rows.task.num_classes * draw.shots - num_rare
        demo_shots = demo_shots if anchor_shots else drawn_shots
    # A draw without anchors takes one more row per class, which is then dropped.
    shots = drawn_shots + (not anchor_shots)
    drawn = splits.draw(rows.train, rows.task, shots=shots, demo_shots=demo_shots, seed=draw.seed)
    if anchor_shots and num_rare is None:
        return drawn
    demonstrations, anchors = drawn.demonstrations, drawn.anchors if anchor_shots else ()
    if num_rare and anchor_shots:
        anchors = thin(anchors, rows.task.labels[-1], max(1, num_rare - demo_shots))
    elif num_rare:
        demonstrations = thin(demonstrations, rows.task.labels[-1], num_rare)
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


def evaluation(rows: inputs.Rows, share: float | None, seed: int) -> Sequence[Example]:
    """Return the rows to classify. With a share, rows of either class are dropped at random until the last class has it."""
    if share is None:
        return rows.evaluation
    check_binary(rows.task)
    places: dict[bool, list[int]] = {True: [], False: []}  # By whether the row is of the last class.
    for place, row in enumerate(rows.evaluation):
        places[row.label == rows.task.labels[-1]].append(place)
    num_last, num_others = len(places[True]), len(places[False])
    kept = {True: max(1, round(num_others * share / (1 - share))), False: num_others}
    if kept[True] > num_last:
        kept = {True: num_last, False: max(1, round(num_last * (1 - share) / share))}
    generator = random.Random(seed)
    chosen = {place for is_last in (True, False) for place in generator.sample(places[is_last], kept[is_last])}
    return [row for place, row in enumerate(rows.evaluation) if place in chosen]


def thin(rows: Sequence[Example], label: str, count: int) -> tuple[Example, ...]:
    """Drop the rows of a label after its first `count`."""
    dropped = {id(row) for row in [row for row in rows if row.label == label][count:]}
    return tuple(row for row in rows if id(row) not in dropped)


def check_binary(task: Task) -> None:
    """Raise a UserError unless the task has two classes, so that one of them can be made rare."""
    if task.num_classes != 2:
        raise errors.UserError(f"task {task.name!r} has {task.num_classes} classes; choose tasks with two classes")
