"""Accuracy along an axis of an experiment: panels by task, lines by method or model, bars of ± one standard deviation."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from knnprompt_jax.report import accuracy_table, drawing, names, published, scores, tables
from knnprompt_jax.report.published import Printed
from knnprompt_jax.report.scores import Record, Score

SHOTS = "m, train rows per class"
BARS = "Bars and bands: ± one sample standard deviation over seeds."
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


def figure(
    name: str, caption: str, records: Sequence[Record], plot: Plot, paper: Sequence[Printed] = ()
) -> drawing.Figure:
    """The panels of a plot, ordered as the axes are, the average first; hollow marks are the paper's."""
    values = names.ordered(plot.line, [scores.axis(each, plot.line) for each in (*records, *paper)])
    looks = {value: names.look(plot.line, value, values) for value in values}
    models = {"": records} if plot.line == "model" else scores.by_model(records)
    panels, drawn = [], False
    for model, group in models.items():
        before = f"{names.model(model)}, " if len(models) > 1 else ""
        measured = [
            number for number in paper if len(models) < 2 or number.model in (model, *published.own_models().values())
        ]
        for title, part, printed in _parts(group, measured, plot):
            panels.append(_panel(before + title, part, printed, plot, looks))
            drawn |= bool(printed)
    shown = {scores.axis(record, plot.line) for record in records} | {
        scores.axis(each, plot.line) for each in paper if drawn
    }
    legend = {names.text(plot.line, value): look for value, look in looks.items() if value in shown}
    legend |= {"guessing": _CHANCE} if _chance(records) else {}
    return drawing.Figure(
        name, f"{caption} {BARS}{_whose(records, paper) if drawn else ''}", tuple(panels), drawing.legend(legend)
    )


def _whose(records: Sequence[Record], paper: Sequence[Printed]) -> str:
    """What the hollow marks are."""
    models = names.ordered("model", [number.model for number in paper])
    other = "" if {record.model for record in records} & set(models) else f" of {', '.join(map(names.model, models))}"
    return f" Hollow marks on dotted lines: the paper's{other}."


def _parts(
    records: Sequence[Record], paper: Sequence[Printed], plot: Plot
) -> list[tuple[str, list[Record], list[Printed]]]:
    """The panels: their titles, our records, and the paper's numbers on the same tasks; a task that did not run has the paper's alone."""
    groups, tasks = scores.pool(records, *plot.panel), {record.task for record in records}
    printed = scores.pool([each for each in paper if each.task != published.AVERAGE], *plot.panel)
    places = {**groups, **printed} if plot.panel == ("task",) else groups
    parts = [
        (_title(plot.panel, place), groups.get(place, []), printed.get(place, []))
        for place in names.ordered_places(plot.panel, places)
    ]
    if plot.average and len(groups) > 1:
        averages = [each for each in paper if each.task == published.AVERAGE and set(each.tasks) == tasks]
        parts.insert(0, ("average over tasks", _in_every_task(records, plot), averages))
    return [part for part in parts if part[1] or part[2]]


def _panel(
    title: str, records: Sequence[Record], paper: Sequence[Printed], plot: Plot, looks: dict[Any, drawing.Look]
) -> str:
    panel = drawing.Panel(title, plot.label, "accuracy, %")
    groups, printed = scores.pool(records, plot.line), scores.pool(paper, plot.line)
    xs = [x for (x,) in scores.pool((*records, *paper), plot.x) if x is not None]
    for value, look in looks.items():
        points = {x: group for (x,), group in scores.pool(groups.get((value,), []), plot.x).items()}
        _line(panel, look, {x: points[x] for x in sorted(xs) if x in points})
        if None in points:
            panel.level("h", look, scores.average(points[None]))  # It does not move along the axis.
        for group in scores.pool(printed.get((value,), []), "model").values():
            theirs = {scores.axis(number, plot.x): number.score for number in group}
            _paper(panel, look, {x: theirs[x] for x in sorted(xs) if x in theirs}, theirs.get(None))
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
        if tables.TRUNCATED in accuracy_table.of_cell(group):
            place: dict[str, Any] = {"xytext": (4, 3), "textcoords": "offset points"}
            panel.axes.annotate("†", (x, averages[x].mean), **place, color=look.colour)


def _paper(panel: drawing.Panel, look: drawing.Look, points: dict[float, Score], level: Score | None) -> None:
    """The paper's numbers: hollow, dotted; `level` is the one that does not move along the axis."""
    if points:
        style = look.style | {"markerfacecolor": "none", "linestyle": ":"}
        panel.axes.plot(list(points), [score.mean for score in points.values()], linewidth=0.9, alpha=0.7, **style)
    if level:
        panel.axes.axhline(level.mean, color=look.colour, linestyle=":", linewidth=0.9, alpha=0.7)


def _chance(records: Sequence[Record]) -> float:
    """What guessing among the classes would reach in %, averaged over tasks; 0 where the records do not say."""
    classes = {record.task: len(record.class_counts) for record in records}
    known = classes and all(classes.values())
    return sum(100 / count for count in classes.values()) / len(classes) if known else 0.0


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
