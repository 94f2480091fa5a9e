"""Figures of accuracies: curves along an axis, box plots over seeds and heatmaps."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from knnprompt_jax.report import accuracies, drawing, names, published, results, tables

SHOTS = "m, train rows per class"
_BANDS = "Bands: ± one sample standard deviation over seeds."
_HOLLOW = {"markerfacecolor": "none", "linestyle": ":", "linewidth": 0.9, "alpha": 0.7}
_BOX_PARTS = ("boxprops", "whiskerprops", "capprops", "medianprops", "flierprops")


@dataclasses.dataclass(frozen=True)
class Plot:
    """Axes of curves: accuracy along `x`, a line per value of `line`, a panel per key on `panel`.

    With `average`, the first panel averages over tasks. With `law`, the panels have errors on logarithmic axes: `law`
    fits accuracies by x and returns an object whose `error(x)` is the expected error in %, or None.
    """

    x: str
    label: str
    line: str = "method"
    panel: tuple[str, ...] = ("task",)
    log: bool = True
    average: bool = True
    law: Callable[[Mapping[float, float]], Any] | None = None


def curves(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot) -> drawing.Figure:
    """Draw accuracies along an axis; hollow marks are the paper's."""
    line_styles = names.line_styles(plot.line, [*ours[plot.line], *paper[plot.line]])
    panels = [_curves(title, part, numbers, plot, line_styles) for title, part, numbers in _parts(ours, paper, plot)]
    caption = f"{caption} {_BANDS}"
    if len(paper):
        printed = names.ordered("model", paper.model)
        models = "" if {*ours.model} & {*printed} else f" of {', '.join(map(names.model, printed))}"
        caption += f" Hollow marks on dotted lines: the paper's numbers{models}."
    titles = {names.text(plot.line, value): options for value, options in line_styles.items()}
    return drawing.Figure(name, caption, tuple(panels), drawing.legend(titles))


def _parts(ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Yield the title, records and printed numbers of each panel."""
    models = {"": ours} if plot.line == "model" else results.by_model(ours)
    for model, runs in models.items():
        prefix = f"{names.model(model)}, " if len(models) > 1 else ""
        same_model = paper.model.isin([model, *published.own_models().values()]) | (len(models) < 2)
        numbers = paper[same_model]
        is_average = numbers.task == published.AVERAGE
        tasks = set(runs.task)
        if plot.average and len(tasks) > 1:
            # No average mixes different tasks: points that some task lacks are not drawn.
            is_complete = runs.groupby([plot.line, plot.x]).task.transform("nunique") == len(tasks)
            same_tasks = pd.Series([set(printed) == tasks for printed in numbers.tasks], numbers.index, dtype=bool)
            yield f"{prefix}average over tasks", runs[is_complete], numbers[is_average & same_tasks]
        runs_of = results.groups(runs, plot.panel)
        numbers_of = results.groups(numbers[~is_average], plot.panel)
        for key in names.ordered_keys(plot.panel, runs_of):
            title = prefix + ", ".join(map(names.text, plot.panel, key))
            yield title, runs_of[key], numbers_of.get(key, numbers[:0])


def _curves(title: str, ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot, line_styles: Mapping[Any, dict]) -> str:
    from matplotlib import ticker

    panel = drawing.Panel(title, plot.label, "error, %" if plot.law else "accuracy, %")
    filled = {results.FILLS_CONTEXT} if plot.x == "m" else set()
    xs = sorted({*ours[plot.x], *paper[plot.x]} - filled) or [1]

    def by_x(rows: pd.DataFrame) -> dict[float, pd.DataFrame]:
        """Return the rows by x; those that fill the context are at both ends of the panel."""
        found = {x: group for (x,), group in sorted(results.groups(rows, [plot.x]).items())}
        if results.FILLS_CONTEXT in filled and results.FILLS_CONTEXT in found:
            return dict.fromkeys((xs[0], xs[-1]), found[results.FILLS_CONTEXT])
        return found

    for value, line_style in line_styles.items():
        points = by_x(ours[ours[plot.line] == value])
        averages = {x: results.average(group) for x, group in points.items()}
        bars = np.array([score.std or 0 for score in averages.values()])
        _line(panel, {x: score.mean for x, score in averages.items()}, plot, line_style, bars)
        for x, score in averages.items():
            if tables.TRUNCATED in accuracies.cell_marks(points[x]):
                point = (x, score.mean)
                panel.axes.annotate("†", point, (4, 3), textcoords="offset points", color=line_style["color"])
        for numbers in results.groups(paper[paper[plot.line] == value], ["model"]).values():
            means = {x: rows.score.iloc[0].mean for x, rows in by_x(numbers).items()}
            _line(panel, means, plot, line_style | _HOLLOW)
    if plot.law:
        panel.axes.set_yscale("log")
        panel.axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
        panel.axes.yaxis.set_major_formatter("{x:g}")
    panel.set_ticks(xs, log=plot.log)
    return panel.svg


def _line(
    panel: drawing.Panel, accuracy: Mapping[float, float], plot: Plot, line_style: dict, bars: np.ndarray | None = None
) -> None:
    """Draw a line of accuracies by x; with a law, draw errors and the line of the law.

    Args:
        bars: half the height of the band around the line; a single point has an error bar instead.
    """
    x = np.array(list(accuracy), float)
    y = np.array(list(accuracy.values()), float)
    points = line_style
    if plot.law:
        y = 100 - y
        points = line_style | {"linestyle": "none"}
    panel.axes.plot(x, y, **points)
    if bars is not None and len(x) == 1:  # A band would have no width.
        panel.axes.errorbar(x, y, bars, color=line_style["color"])
    elif bars is not None:
        panel.axes.fill_between(x, y - bars, y + bars, color=line_style["color"], alpha=0.1, linewidth=0)
    law = plot.law(accuracy) if plot.law else None
    if law:
        panel.axes.plot(x, law.error(x), **line_style | {"marker": ""})


def boxes(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame) -> drawing.Figure:
    """Draw a box over seeds for each method and m, a panel per task."""
    panels = []
    line_styles = names.line_styles("method", ours.method)
    for title, part, _ in _parts(ours, paper, Plot("m", SHOTS, average=False)):
        if part.empty:
            continue
        panel = drawing.Panel(title, SHOTS, "accuracy, %")
        columns = names.ordered("m", part.m)
        for index, (method, line_style) in enumerate(line_styles.items()):
            positions = np.arange(len(columns)) + 0.3 * (index - (len(line_styles) - 1) / 2)
            values = [part.accuracy[(part.m == m) & (part.method == method)] for m in columns]
            color = {"color": line_style["color"], "markeredgecolor": line_style["color"]}
            colors = dict.fromkeys(_BOX_PARTS, color)
            panel.axes.boxplot(values, positions=positions, widths=0.22, manage_ticks=False, **colors)
        panel.axes.set_xticks(range(len(columns)), [names.text("m", m) for m in columns])
        panels.append(panel.svg)
    titles = {names.method(method): line_style for method, line_style in line_styles.items()}
    return drawing.Figure(name, caption, tuple(panels), drawing.legend(titles))


def heatmaps(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame) -> drawing.Figure:
    """Draw the mean accuracy over seeds at each (|D|, |A|), a panel per method and task.

    The highest value of a panel is the darkest.
    """
    panels = []
    panel_axes = ("task",) if ours.method.nunique() == 1 else ("method", "task")
    for title, part, _ in _parts(ours, paper, Plot("m", SHOTS, panel=panel_axes, average=False)):
        values = part.pivot_table("accuracy", "demo_shots", "anchor_shots")
        panel = drawing.Panel(title, "|A|, anchors per class", "|D|, demonstrations per class")
        low = values.min().min()
        high = values.max().max()
        darkest = 2 * high - low + 1e-9  # The darker half of the colours is unused, so that text is readable.
        panel.axes.pcolormesh(values, cmap="Blues", vmin=low, vmax=darkest)
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                panel.axes.text(column + 0.5, row + 0.5, f"{value:.1f}", ha="center", va="center")
        panel.axes.set_xticks(np.arange(len(values.columns)) + 0.5, list(map(str, values.columns)))
        panel.axes.set_yticks(np.arange(len(values)) + 0.5, list(map(str, values.index)))
        panel.axes.grid(False)
        panels.append(panel.svg)
    return drawing.Figure(name, caption, tuple(panels))
