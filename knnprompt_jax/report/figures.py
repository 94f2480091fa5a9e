"""Figures of accuracies: curves along an axis, box plots over seeds, histograms of prompts and heatmaps."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from knnprompt_jax.report import accuracies, drawing, names, published, results, tables

SHOTS = "m, train rows per class"
BOUND = "demonstration_upper_bound"
_BARS = "Bars and bands: ± one sample standard deviation over seeds."
_CHANCE = drawing.Look(drawing.GREY, "", ":")
_MANY = 12  # With more points than this, a line has a band instead of bars.


@dataclasses.dataclass(frozen=True)
class Plot:
    """Axes of curves: accuracy along `x`, a line per value of `line`, a panel per place on `panel`.

    With `average`, the first panel averages over tasks.
    """

    x: str
    label: str
    line: str = "method"
    panel: tuple[str, ...] = ("task",)
    log: bool = True
    average: bool = True


def curves(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot) -> drawing.Figure:
    """Draw accuracies along an axis; hollow marks are the paper's."""
    looks = names.looks(plot.line, [*ours[plot.line], *paper[plot.line]])
    models = {"": ours} if plot.line == "model" else results.by_model(ours)
    panels, lines, has_paper = [], set(ours[plot.line]), False
    for model, runs in models.items():
        prefix = f"{names.model(model)}, " if len(models) > 1 else ""
        same_model = paper.model.isin([model, *published.own_models().values()]) | (len(models) < 2)
        for title, part, numbers in _parts(runs, paper[same_model], plot):
            panels.append(_curves(prefix + title, part, numbers, plot, looks))
            has_paper = has_paper or len(numbers) > 0
    if has_paper:
        lines |= set(paper[plot.line])
        printed_models = names.ordered("model", paper.model)
        others = "" if {*ours.model} & {*printed_models} else f" of {', '.join(map(names.model, printed_models))}"
        caption = f"{caption} {_BARS} Hollow marks on dotted lines: the paper's{others}."
    else:
        caption = f"{caption} {_BARS}"
    legend = {names.text(plot.line, value): look for value, look in looks.items() if value in lines}
    legend |= {"guessing": _CHANCE} if _chance(ours) else {}
    return drawing.Figure(name, caption, tuple(panels), drawing.legend(legend))


def _parts(ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot) -> list[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Return the title, records and printed numbers of each panel; a task that was not run has printed numbers only."""
    by_place = results.groups(ours, plot.panel)
    printed = results.groups(paper[paper.task != published.AVERAGE], plot.panel)
    parts = []
    if plot.average and len(by_place) > 1:
        tasks = set(ours.task)
        # Points that some task lacks are left out, so that no average mixes different tasks.
        complete = ours.groupby([plot.line, plot.x]).task.transform("nunique") == len(tasks)
        same = paper.tasks.map(lambda printed: set(printed) == tasks).astype(bool) & (paper.task == published.AVERAGE)
        parts.append(("average over tasks", ours[complete], paper[same]))
    places = by_place | printed if plot.panel == ("task",) else by_place
    for place in names.ordered_places(plot.panel, places):
        title = ", ".join(
            f"Setting {value}" if axis == "setting" else names.text(axis, value)
            for axis, value in zip(plot.panel, place, strict=True)
        )
        parts.append((title, by_place.get(place, ours[:0]), printed.get(place, paper[:0])))
    return [part for part in parts if len(part[1]) or len(part[2])]


def _curves(title: str, ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot, looks: Mapping[Any, drawing.Look]) -> str:
    panel = drawing.Panel(title, plot.label, "accuracy, %")
    for value, look in looks.items():
        points = {x: group for (x,), group in results.groups(ours[ours[plot.line] == value], [plot.x]).items()}
        if plot.x == "m" and results.FILLS_CONTEXT in points:
            panel.level("h", look, results.average(points.pop(results.FILLS_CONTEXT)))
        _line(panel, look, dict(sorted(points.items())))
        for numbers in results.groups(paper[paper[plot.line] == value], ["model"]).values():
            means = dict(sorted((x, score.mean) for x, score in zip(numbers[plot.x], numbers.score, strict=True)))
            style = {"color": look.colour, "linestyle": ":", "linewidth": 0.9, "alpha": 0.7}
            if plot.x == "m" and results.FILLS_CONTEXT in means:
                panel.axes.axhline(means.pop(results.FILLS_CONTEXT), **style)
            if means:
                panel.axes.plot(list(means), list(means.values()), marker=look.marker, markerfacecolor="none", **style)
    if chance := _chance(ours):
        panel.axes.axhline(chance, color=_CHANCE.colour, linestyle=_CHANCE.dash, linewidth=1)
    xs = {*ours[plot.x], *paper[plot.x]} - ({results.FILLS_CONTEXT} if plot.x == "m" else set())
    if xs:
        panel.ticks(xs, log=plot.log)
    return panel.svg


def _line(panel: drawing.Panel, look: drawing.Look, points: Mapping[float, pd.DataFrame]) -> None:
    """Draw the averages along the axis with bars or a band; † marks truncated prompts."""
    averages = {x: results.average(group) for x, group in points.items()}
    means, bars = [score.mean for score in averages.values()], [score.std or 0 for score in averages.values()]
    if len(averages) > _MANY:
        panel.axes.plot(list(averages), means, color=look.colour, linestyle=look.dash)
        low, high = np.subtract(means, bars), np.add(means, bars)
        panel.axes.fill_between(list(averages), low, high, color=look.colour, alpha=0.15, linewidth=0)
    elif averages:
        panel.axes.errorbar(list(averages), means, bars, **look.style, elinewidth=0.8)
    for x, group in points.items():
        if tables.TRUNCATED in accuracies.cell_marks(group):
            place = (x, averages[x].mean)
            panel.axes.annotate("†", place, xytext=(4, 3), textcoords="offset points", color=look.colour)


def _chance(ours: pd.DataFrame) -> float:
    """Return the expected accuracy of guessing in %, averaged over tasks; 0 if the records do not give their classes."""
    classes = ours.drop_duplicates("task", keep="last").num_classes
    return float((100 / classes).mean()) if len(classes) and classes.all() else 0.0


def boxes(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame) -> drawing.Figure:
    """Draw a box over seeds for each method and m, a panel per task; hollow: the paper's mean ± standard deviation."""
    panels = tuple(_boxes(title, part, paper[paper.task == part.task.iloc[0]]) for title, part in names.panels(ours))
    legend = {names.method(method): look for method, look in names.looks("method", ours.method).items()}
    return drawing.Figure(name, caption, panels, drawing.legend(legend))


def _boxes(title: str, ours: pd.DataFrame, paper: pd.DataFrame) -> str:
    panel = drawing.Panel(title, SHOTS, "accuracy, %")
    columns = names.ordered("m", ours.m)
    for column, m in enumerate(columns):
        methods = names.ordered("method", ours[ours.m == m].method)
        for place, method in enumerate(methods):
            at, colour = column + 0.3 * (place - (len(methods) - 1) / 2), names.method_look(method).colour
            values = ours[(ours.m == m) & (ours.method == method)].accuracy
            line, median = {"color": colour, "linewidth": 1}, {"color": colour, "linewidth": 2}
            lines = dict.fromkeys(("boxprops", "whiskerprops", "capprops"), line) | {"medianprops": median}
            panel.axes.boxplot(values, positions=[at], widths=0.22, showfliers=False, manage_ticks=False, **lines)
            panel.axes.plot(np.full(len(values), at), values, "o", color=colour, markersize=2.5, alpha=0.6)
            for score in paper[(paper.m == m) & (paper.method == method)].score:
                hollow = {"markerfacecolor": "none", "marker": "D", "color": colour, "elinewidth": 0.8, "alpha": 0.8}
                panel.axes.errorbar([at + 0.14], [score.mean], [score.std], linestyle="none", **hollow)
    panel.axes.set_xticks(range(len(columns)), [names.text("m", m) for m in columns])
    panel.axes.set_xlim(-0.6, len(columns) - 0.4)
    return panel.svg


def prompts(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame) -> drawing.Figure:
    """Draw a histogram of the accuracies of random prompts, and lines for the other methods; dotted: the paper's."""
    parts = [(title, part) for title, part in names.panels(ours) if part.candidates.map(len).any()]
    panels = tuple(_histogram(title, part, paper[paper.task == part.task.iloc[0]]) for title, part in parts)
    looks = names.looks("method", ours.method[ours.method != BOUND])
    legend = {f"{names.method(method)}, mean ± std": look for method, look in looks.items()}
    return drawing.Figure(name, caption, panels, drawing.legend(legend))


def _histogram(title: str, ours: pd.DataFrame, paper: pd.DataFrame) -> str:
    tried = 100 * ours.candidates.explode().dropna().astype(float)
    panel = drawing.Panel(f"{title}: the best prompt has {tried.max():.1f} %", "accuracy of a prompt, %", "prompts")
    panel.axes.hist(tried, bins="auto", color=drawing.GREY, alpha=0.45)
    panel.axes.axvline(tried.max(), color=drawing.GREY, linewidth=1)
    for (method,), runs in results.groups(ours[ours.method != BOUND], ["method"]).items():
        panel.level("v", names.method_look(method), results.accuracy(runs))
    for method, score in zip(paper.method, paper.score, strict=True):
        colour = drawing.GREY if method == BOUND else names.method_look(method).colour
        panel.axes.axvline(score.mean, color=colour, linestyle=":", linewidth=1)
    return panel.svg


def heatmaps(name: str, caption: str, ours: pd.DataFrame) -> drawing.Figure:
    """Draw the mean accuracy over seeds at each (|D|, |A|), a panel per task."""
    parts = [
        (title, part.groupby(["demo_shots", "anchor_shots"]).accuracy.mean().unstack())
        for title, part in names.panels(ours)
    ]
    return drawing.Figure(name, caption, tuple(heatmap(title, values) for title, values in parts))


def heatmap(title: str, values: pd.DataFrame) -> str:
    """Draw a coloured cell with its number for each value; the panel's highest value is the darkest."""
    from matplotlib import colors

    panel = drawing.Panel(title, "|A|, anchors per class", "|D|, demonstrations per class")
    blues = colors.LinearSegmentedColormap.from_list("blues", ["#e8f0fa", "#0b3d7a"])
    low, high = values.min().min(), values.max().max()
    panel.axes.pcolormesh(values, cmap=blues, vmin=low, vmax=max(high, low + 1e-9))
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            # A fixed dark grey, because black would follow the page's colour scheme and the cell does not.
            colour = "white" if value > (low + high) / 2 else "#17202a"
            panel.axes.text(column + 0.5, row + 0.5, f"{value:.1f}", ha="center", va="center", fontsize=8, color=colour)
    panel.axes.set_xticks(np.arange(len(values.columns)) + 0.5, list(map(str, values.columns)))
    panel.axes.set_yticks(np.arange(len(values)) + 0.5, list(map(str, values.index)))
    panel.axes.grid(False)
    return panel.svg
