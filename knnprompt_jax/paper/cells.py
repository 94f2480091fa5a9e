"""The cells of a table or figure: a method, its draw of train rows and its rows to classify. One cell is one record.

Draws are the published ones, all rows as demonstrations, or draws in which one class is rare.
"""

import collections
import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from knnprompt_jax import distances, errors
from knnprompt_jax import options as options_lib
from knnprompt_jax.methods import all_methods
from knnprompt_jax.methods import method as method_lib
from knnprompt_jax.settings import grids
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example, Task

REUSED = "re-uses in-context learning: |D| = m"


@dataclasses.dataclass(frozen=True)
class Draw:
    """A draw of `shots` train rows per class, of which `demo_shots` are demonstrations: all, some or none.

    Attributes:
        seed: the seed of the draw.
        shots: train rows per class.
        demo_shots: demonstrations per class.
        share: the share of the task's last class in all rows drawn, demonstrations included; their number stays the
            same. None draws equally many rows of each class.
    """

    seed: int
    shots: int
    demo_shots: int
    share: float | None = None


@dataclasses.dataclass(frozen=True)
class GridCell:
    """A method, its train rows and the rows to classify.

    Attributes:
        method: the name of the method.
        draw: the train rows.
        axes: the cell's value on each axis of the grid; an axis with the name of an option of the method sets it.
        test_share: the share of the task's last class in the rows to classify; None keeps their own share.
        replacement: a method that runs in place of the named one.
    """

    method: str
    draw: Draw
    axes: tuple[tuple[str, Any], ...] = ()
    test_share: float | None = None
    replacement: method_lib.Method | None = dataclasses.field(default=None, compare=False)

    @property
    def reuses_icl(self) -> bool:
        """Whether all shots are demonstrations and none is left for the method, as in the paper's footnote."""
        no_anchors = self.draw.demo_shots == self.draw.shots
        return no_anchors and all_methods.get(self.method).rows_used not in ("demonstrations", "texts")

    @property
    def declared(self) -> method_lib.Method:
        """The method that runs."""
        if self.reuses_icl:
            return all_methods.get("icl")
        return self.replacement or all_methods.get(self.method)

    def options(self, settings: grids.GridSettings) -> options_lib.Options:
        """Return the grid's options of the method, with the values of axes and the grid's direction of divergences."""
        options = self.declared.options(settings)
        names = {field.name for field in dataclasses.fields(options)}
        changes = {name: value for name, value in self.axes if name in names}
        if "distance" in names:
            changes["distance"] = distances.turned(options.distance, settings.direction)
        return dataclasses.replace(options, **changes)


def regimes(settings: grids.GridSettings, rows: inputs.Rows, max_demo_shots: int) -> Iterator[GridCell]:
    """Yield a cell for each regime, number of shots, method and seed. `max_demo_shots` is M_T."""
    del rows
    for regime, shots in settings.regime_shots:
        for name in settings.methods:
            drawn_shots, demo_shots = _shots(all_methods.get(name), regime, shots, max_demo_shots)
            # Beside the full regime, the few-shot regime goes no further than the context does.
            if settings.few_shots and demo_shots > max_demo_shots:
                continue
            for seed in settings.seeds:
                yield GridCell(name, Draw(seed, drawn_shots, demo_shots), (("regime", regime),))


def _shots(method: method_lib.Method, regime: str, shots: int, max_demo_shots: int) -> tuple[int, int]:
    """Return the train rows per class that a method draws, and how many of them are demonstrations."""
    if method.rows_used == "demonstrations":
        demo_shots = shots if regime == grids.FEW_SHOT else max_demo_shots
        return demo_shots, demo_shots
    return shots, min(shots, 1 if regime == grids.FEW_SHOT else max_demo_shots)


@functools.cache
def split(rows: inputs.Rows, draw: Draw) -> splits.FewShotSplit:
    """Return the rows of a draw.

    Without anchors, all shots are demonstrations. With a share and anchors, the demonstrations stay balanced, and the
    rare class has at least one anchor.

    Raises:
        UserError: the task has too few rows, or there is a share but the task does not have two classes.
    """
    task = rows.task
    draw_published = functools.partial(splits.draw, rows.train, task, seed=draw.seed)
    if draw.share is None and draw.demo_shots < draw.shots:
        return draw_published(shots=draw.shots, demo_shots=draw.demo_shots)
    rare = task.labels[-1]
    expected = dict.fromkeys(task.labels, draw.shots)
    if draw.share is not None:
        check_binary(task)
        expected[rare] = max(1, round(draw.share * 2 * draw.shots))
        expected[task.labels[0]] = 2 * draw.shots - expected[rare]
    shots = expected[task.labels[0]]
    if draw.demo_shots == draw.shots:
        drawn = draw_published(shots=shots + 1, demo_shots=shots)  # A published draw has anchors.
        demonstrations = _thin(drawn.demonstrations, rare, expected[rare])
        return _replace_rows(drawn, task, draw, demonstrations, (), expected)
    drawn = draw_published(shots=shots, demo_shots=draw.demo_shots)
    anchors = _thin(drawn.anchors, rare, max(1, expected[rare] - draw.demo_shots))
    return _replace_rows(drawn, task, draw, drawn.demonstrations, anchors, expected)


def _thin(rows: Sequence[Example], label: str, count: int) -> list[Example]:
    """Drop the rows of a label after its first `count`."""
    number = itertools.count()
    return [row for row in rows if row.label != label or next(number) < count]


def _replace_rows(
    drawn: splits.FewShotSplit,
    task: Task,
    draw: Draw,
    demonstrations: Sequence[Example],
    anchors: Sequence[Example],
    expected: Mapping[str, int],
) -> splits.FewShotSplit:
    """Replace the rows of a split, and its warnings by those about classes with fewer rows than `expected`."""
    num_demonstrations = collections.Counter(row.label for row in demonstrations)
    num_anchors = collections.Counter(row.label for row in anchors)
    class_counts = {
        label: splits.ClassCounts(old.train, num_demonstrations[label], num_anchors[label])
        for label, old in drawn.class_counts.items()
    }
    warnings = []
    for label, number in expected.items():
        found = num_demonstrations[label] + num_anchors[label]
        if found < number:
            warnings.append(f"task {task.name!r}: class {label!r} has {found} of the {number} rows asked for")
    return dataclasses.replace(
        drawn,
        demonstrations=tuple(demonstrations),
        anchors=tuple(anchors),
        shots=draw.shots,
        demo_shots=draw.demo_shots,
        class_counts=class_counts,
        warnings=tuple(warnings),
    )


def evaluation(rows: inputs.Rows, share: float | None, seed: int) -> Sequence[Example]:
    """Return the rows to classify.

    With a share, rows of one class are dropped at random, so that the task's last class has this share.
    """
    if share is None:
        return rows.evaluation
    check_binary(rows.task)
    is_last = [row.label == rows.task.labels[-1] for row in rows.evaluation]
    last = [index for index, value in enumerate(is_last) if value]
    others = [index for index, value in enumerate(is_last) if not value]
    num_last = max(1, round(len(others) * share / (1 - share)))
    num_others = len(others)
    if num_last > len(last):
        num_last = len(last)
        num_others = max(1, round(len(last) * (1 - share) / share))
    generator = random.Random(seed)
    kept = {*generator.sample(last, num_last), *generator.sample(others, num_others)}
    return [row for index, row in enumerate(rows.evaluation) if index in kept]


def check_binary(task: Task) -> None:
    """Raise UserError unless the task has two classes, so that one of them can be made rare."""
    if task.num_classes != 2:
        raise errors.UserError(f"task {task.name!r} has {task.num_classes} classes; choose tasks with two classes")
