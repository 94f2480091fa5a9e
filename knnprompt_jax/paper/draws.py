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

    With a `share`, the task's last class has that share of all rows drawn, demonstrations included, whose number stays as it is.
    """

    seed: int
    shots: int
    demo_shots: int
    share: float | None = None


@functools.cache
def split(rows: material.Rows, draw: Draw) -> splits.FewShotSplit:
    """The rows of a draw.

    Without anchors, all shots are demonstrations. With a share, the demonstrations stay balanced where there are anchors, of which
    the rare class has one at least.

    Raises UserError where the task has too few rows, or a share but not two classes.
    """
    shown, kept = draw.demo_shots, draw.shots - draw.demo_shots
    drawn_shots, rare = draw.shots, None
    if draw.share is not None:
        check_binary(rows.task)
        rare = max(1, round(draw.share * rows.task.num_classes * draw.shots))
        drawn_shots = rows.task.num_classes * draw.shots - rare
        shown = shown if kept else drawn_shots
    drawn = splits.draw(rows.train, rows.task, shots=drawn_shots + (not kept), demo_shots=shown, seed=draw.seed)
    if kept and rare is None:
        return drawn
    demonstrations, anchors = drawn.demonstrations, drawn.anchors if kept else ()
    if rare and kept:
        anchors = thin(anchors, rows.task.labels[-1], max(1, rare - shown))
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
    """The rows to classify; with a share, rows of either class are left out at random until the last class has it."""
    if share is None:
        return rows.evaluation
    check_binary(rows.task)
    places: dict[bool, list[int]] = {True: [], False: []}
    for place, row in enumerate(rows.evaluation):
        places[row.label == rows.task.labels[-1]].append(place)
    members, others = len(places[True]), len(places[False])
    kept = {True: max(1, round(others * share / (1 - share))), False: others}
    if kept[True] > members:
        kept = {True: members, False: max(1, round(members * (1 - share) / share))}
    generator = random.Random(seed)
    chosen = {place for last in (True, False) for place in generator.sample(places[last], kept[last])}
    return [row for place, row in enumerate(rows.evaluation) if place in chosen]


def thin(rows: Sequence[Example], label: str, count: int) -> tuple[Example, ...]:
    """The rows but for those of one label after its first `count`."""
    left_out = {id(row) for row in [row for row in rows if row.label == label][count:]}
    return tuple(row for row in rows if id(row) not in left_out)


def check_binary(task: Task) -> None:
    """Raises UserError unless the task has two classes, as every task has of which one class can be made rare."""
    if task.num_classes != 2:
        raise errors.UserError(f"task {task.name!r} has {task.num_classes} classes: choose tasks of two classes")
