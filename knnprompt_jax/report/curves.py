"""Accuracy along an axis of an experiment: panels by task, lines by method or model, bars of ± one standard deviation."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from knnprompt_jax.report import accuracy_table, drawing, names, published, scores, tables
from knnprompt_jax.report.scores import Record, Score

SHOTS = "m, train rows per class"
BARS = "Bars and bands: ± one sample standard deviation over seeds."
_PAPER = " Hollow marks on dotted lines: the paper's."
_CHANCE = drawing.Look(drawing.GREY, "", ":")
_MANY = 12  # Points, above which a band is clearer than bars.


@dataclasses.dataclass(frozen=True)
class Plot:
    """What an experiment's curves show: accuracy along the axis `x`, a line for each place on `line`, a panel for each on `panel`.

    With `average`, one more panel averages over tasks.
    """

    x: str
    label: str
    line: str = "method"
    panel: tuple[str, ...] = ("task",)
    log: bool = True
    average: bool = True


def figure(name: str, caption: str, records: Sequence[Record], plot: Plot) -> drawing.Figure:
    """The panels of a plot, ordered as the axes are, the average first."""
    values = names.ordered(plot.line, [scores.axis(record, plot.line) for record in records])
    looks = {value: names.look(plot.line, value, values) for value in values}
    models = {"": records} if plot.line == "model" else scores.by_model(records)
    panels = []
    for model, group in models.items():
        before = f"{names.model(model)}, " if len(models) > 1 else ""
        panels += [_panel(before + title, part, plot, looks) for title, part in _parts(group, plot) if part]
    legend = {names.text(plot.line, value): look for value, look in looks.items()}
    legend |= {"guessing": _CHANCE} if _chance(records) else {}
    paper = _PAPER if any(accuracy_table.counterpart(record)[0] for record in records) else ""
    return drawing.Figure(name, f"{caption} {BARS}{paper}", tuple(panels), drawing.legend(legend))


def _parts(records: Sequence[Record], plot: Plot) -> list[tuple[str, list[Record]]]:
    groups = scores.pool(records, *plot.panel)
    parts = [(_title(plot.panel, place), groups[place]) for place in names.ordered_places(plot.panel, groups)]
    if plot.average and len(parts) > 1:
        return [("average over tasks", _in_every_task(records, plot)), *parts]
    return parts


def _panel(title: str, records: Sequence[Record], plot: Plot, looks: dict[Any, drawing.Look]) -> str:
    panel = drawing.Panel(title, plot.label, "accuracy, %")
    xs = [x for (x,) in scores.pool(records, plot.x) if x is not None]
    for (value,), group in sorted(
        scores.pool(records, plot.line).items(), key=lambda item: list(looks).index(item[0][0])
    ):
        points = scores.pool(group, plot.x)
        _line(panel, looks[value], {x: points[x,] for x in sorted(xs) if (x,) in points})
        if (None,) in points:
            panel.level("h", looks[value], scores.average(points[None,]))  # It does not move along the axis.
        _paper(panel, looks[value], {x: _counterpart(points[x,]) for x in sorted(xs) if (x,) in points})
    if chance := _chance(records):
        panel.axes.axhline(chance, color=_CHANCE.colour, linestyle=_CHANCE.dash, linewidth=1)
    if xs:
        panel.ticks(xs, log=plot.log)
    return panel.svg


def _line(panel: drawing.Panel, look: drawing.Look, points: dict[float, list[Record]]) -> None:
    """The averages along the axis, each with its bar and, where prompts were cut, the tables' mark."""
    averages = {x: scores.average(group) for x, group in points.items()}
    means, bars = [score.mean for score in averages.values()], [score.std or 0 for score in averages.values()]
    if len(averages) > _MANY:
        panel.axes.plot(list(averages), means, color=look.colour, linestyle=look.dash)
        low, high = np.subtract(means, bars), np.add(means, bars)
        panel.axes.fill_between(list(averages), low, high, color=look.colour, alpha=0.15, linewidth=0)
    elif averages:
        panel.axes.errorbar(list(averages), means, bars, **look.style, elinewidth=0.8)
    for x, group in points.items():
        if tables.TRUNCATED in accuracy_table.marks(group):
            place: dict[str, Any] = {"xytext": (4, 3), "textcoords": "offset points"}
            panel.axes.annotate(tables.TRUNCATED, (x, averages[x].mean), **place, color=look.colour)


def _paper(panel: drawing.Panel, look: drawing.Look, points: dict[float, Score | None]) -> None:
    """The paper's numbers where they are counterparts: hollow, dotted."""
    known = {x: score.mean for x, score in points.items() if score}
    if known:
        style = look.style | {"markerfacecolor": "none", "linestyle": ":"}
        panel.axes.plot(list(known), list(known.values()), linewidth=0.9, alpha=0.7, **style)


def _counterpart(records: Sequence[Record]) -> Score | None:
    """The paper's average over the records' tasks, if it has them all with the same model, m and method."""
    printed = [accuracy_table.counterpart(group[0]) for group in scores.pool(records, "task").values()]
    return published.average(score for _, score in printed if score) if all(same for same, _ in printed) else None


def _chance(records: Sequence[Record]) -> float:
    """What guessing among the classes would reach in %, averaged over tasks; 0 where the records do not say."""
    classes = {record.task: len(record.class_counts) for record in records}
    return sum(100 / count for count in classes.values()) / len(classes) if all(classes.values()) else 0.0


def _in_every_task(records: Sequence[Record], plot: Plot) -> list[Record]:
    """The records of those points that every task has, so that no average mixes different tasks."""
    tasks = {record.task for record in records}
    groups = scores.pool(records, plot.line, plot.x).values()
    return [record for group in groups if {record.task for record in group} == tasks for record in group]


def _title(axes: Sequence[str], place: tuple) -> str:
    named: dict[str, Callable[[Any], str]] = {"task": names.task, "setting": "Setting {}".format}
    return ", ".join(
        named[axis](value) if axis in named else names.text(axis, value)
        for axis, value in zip(axes, place, strict=True)
    )
