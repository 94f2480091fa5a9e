"""The cells of a table or figure: a method, its draw of train rows and its rows to classify. One cell is one record.

Draws are the published ones, all rows as demonstrations, or draws in which one class is rare.
"""

import collections
import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax import options as options_lib
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.methods import registry
from knnprompt_jax.runs import inputs
from knnprompt_jax.settings import grids
from knnprompt_jax.settings.classifiers import AUTO
from knnprompt_jax.store import distances
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

REUSED = "re-uses in-context learning: |D| = m"


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


@dataclasses.dataclass(frozen=True)
class GridCell:
    """A method, its train rows and the rows to classify.

    Attributes:
      axes: the places on the grid's axes; an axis with the name of an option of the method sets that option.
      test_share: the share of the task's last class in the rows to classify; None keeps their own share.
      variant: a method that runs in place of the named one.
    """

    method: str
    draw: Draw
    axes: tuple[tuple[str, Any], ...] = ()
    test_share: float | None = None
    variant: method_lib.Method | None = dataclasses.field(default=None, compare=False)

    @property
    def reuses_icl(self) -> bool:
        """Whether all shots are demonstrations and none is left for the method, as in the paper's footnote."""
        no_anchors = self.draw.demo_shots == self.draw.shots
        return no_anchors and registry.get(self.method).rows_used not in ("demonstrations", "texts")

    @property
    def declared(self) -> method_lib.Method:
        """The method that runs."""
        return registry.get("icl") if self.reuses_icl else self.variant or registry.get(self.method)

    def options(self, settings: grids.GridSettings) -> options_lib.Options:
        """Return the method's options: the grid's, with the values of axes and the grid's direction in their place."""
        options = self.declared.options(settings)
        names = {field.name for field in dataclasses.fields(options)}
        changes = {name: value for name, value in self.axes if name in names}
        if getattr(options, "distance", AUTO) != AUTO:
            changes["distance"] = distances.turned(options.distance, settings.direction)
        return dataclasses.replace(options, **changes)


def regimes(
    settings: grids.GridSettings, names: Sequence[str], rows: inputs.Rows, max_demo_shots: int
) -> Iterator[GridCell]:
    """Yield a cell for each regime, number of shots, method and seed. `max_demo_shots` is M_T."""
    del rows
    for (regime, shots), name, seed in itertools.product(settings.regime_shots, names, settings.seeds):
        is_few_shot, rows_used = regime == grids.FEW_SHOT, registry.get(name).rows_used
        if rows_used == "demonstrations":
            demo_shots = drawn_shots = shots if is_few_shot else max_demo_shots
        else:
            demo_shots = 0 if rows_used == "train" else min(shots, 1 if is_few_shot else max_demo_shots)
            drawn_shots = shots
        # Beside the full regime, the few-shot regime goes no further than the context does.
        if not settings.few_shots or demo_shots <= max_demo_shots:
            yield GridCell(name, Draw(seed, drawn_shots, demo_shots), (("regime", regime),))


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
    asked = dict.fromkeys(rows.task.labels, drawn_shots) | ({rows.task.labels[-1]: num_rare} if num_rare else {})
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
        warnings=tuple(
            f"task {rows.task.name!r}: class {label!r} has {counts[0][label] + counts[1][label]} of the {number} rows asked for"
            for label, number in asked.items()
            if counts[0][label] + counts[1][label] < number
        ),
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
