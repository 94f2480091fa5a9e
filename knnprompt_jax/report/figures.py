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


@dataclasses.dataclass(frozen=True)
class Plot:
    """Axes of curves: accuracy along `x`, a line per value of `line`, a panel per place on `panel`.

    With `average`, the first panel averages over tasks. With `law`, the panels have errors on logarithmic axes: `law` fits
    accuracies by x and returns an object whose `error(x)` is the expected error in %, or None.
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
    looks = names.looks(plot.line, [*ours[plot.line], *paper[plot.line]])
    panels = [_curves(title, part, numbers, plot, looks) for title, part, numbers in _parts(ours, paper, plot)]
    caption = f"{caption} {_BANDS}"
    if len(paper):
        printed = names.ordered("model", paper.model)
        models = "" if {*ours.model} & {*printed} else f" of {', '.join(map(names.model, printed))}"
        caption += f" Hollow marks on dotted lines: the paper's numbers{models}."
    legend = {names.text(plot.line, value): look for value, look in looks.items()}
    return drawing.Figure(name, caption, tuple(panels), drawing.legend(legend))


def _parts(ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Yield the title, records and printed numbers of each panel."""
    if "regime" not in plot.panel and ours.regime.nunique() > 1:
        for (regime,), runs in results.groups(ours, ["regime"]).items():
            for title, part, numbers in _parts(runs, paper[paper.regime == regime], plot):
                yield f"{regime}, {title}", part, numbers
        return
    models = {"": ours} if plot.line == "model" else results.by_model(ours)
    for model, runs in models.items():
        prefix = f"{names.model(model)}, " if len(models) > 1 else ""
        same_model = paper.model.isin([model, *published.own_models().values()]) | (len(models) < 2)
        tasks, is_average = set(runs.task), paper.task == published.AVERAGE
        if plot.average and len(tasks) > 1:
            # Points that some task lacks are left out, so that no average mixes different tasks.
            complete = runs.groupby([plot.line, plot.x]).task.transform("nunique") == len(tasks)
            same = paper.tasks.map(lambda printed, tasks=tasks: set(printed) == tasks).astype(bool)
            yield f"{prefix}average over tasks", runs[complete], paper[same & is_average & same_model]
        by_place = results.groups(runs, plot.panel)
        printed = results.groups(paper[~is_average & same_model], plot.panel)
        for place in names.ordered_places(plot.panel, by_place):
            title = prefix + ", ".join(map(names.text, plot.panel, place))
            yield title, by_place[place], printed.get(place, paper[:0])


def _curves(title: str, ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot, looks: Mapping[Any, dict]) -> str:
    from matplotlib import ticker

    panel = drawing.Panel(title, plot.label, "error, %" if plot.law else "accuracy, %")
    filled = {results.FILLS_CONTEXT} if plot.x == "m" else set()
    xs = sorted({*ours[plot.x], *paper[plot.x]} - filled) or [1]

    def by_x(rows: pd.DataFrame) -> dict[float, pd.DataFrame]:
        """Return the rows by x; those that fill the context are at both ends of the panel."""
        found = {x: group for (x,), group in sorted(results.groups(rows, [plot.x]).items())}
        return {end: found[x] for x in filled & set(found) for end in (xs[0], xs[-1])} or found

    for value, look in looks.items():
        points = by_x(ours[ours[plot.line] == value])
        averages = {x: results.average(group) for x, group in points.items()}
        bars = np.array([score.std or 0 for score in averages.values()])
        _line(panel, {x: score.mean for x, score in averages.items()}, plot, look, bars)
        for x, score in averages.items():
            if tables.TRUNCATED in accuracies.cell_marks(points[x]):
                panel.axes.annotate("†", (x, score.mean), (4, 3), textcoords="offset points", color=look["color"])
        for numbers in results.groups(paper[paper[plot.line] == value], ["model"]).values():
            _line(panel, {x: rows.score.iloc[0].mean for x, rows in by_x(numbers).items()}, plot, look | _HOLLOW)
    if plot.law:
        panel.axes.set_yscale("log")
        panel.axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
        panel.axes.yaxis.set_major_formatter("{x:g}")
    panel.ticks(xs, log=plot.log)
    return panel.svg


def _line(
    panel: drawing.Panel, accuracy: Mapping[float, float], plot: Plot, look: dict, bars: np.ndarray | None = None
) -> None:
    """Draw accuracies in a band of ± `bars`, a single one with an error bar; or, with a law, errors and the line of the law."""
    x, y = np.array(list(accuracy), float), np.array(list(accuracy.values()), float)
    y = 100 - y if plot.law else y
    panel.axes.plot(x, y, **look | ({"linestyle": "none"} if plot.law else {}))
    if bars is not None and len(x) == 1:  # A band would have no width.
        panel.axes.errorbar(x, y, bars, color=look["color"])
    elif bars is not None:
        panel.axes.fill_between(x, y - bars, y + bars, color=look["color"], alpha=0.1, linewidth=0)
    if plot.law and (law := plot.law(accuracy)):
        panel.axes.plot(x, law.error(x), **look | {"marker": ""})


def boxes(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame) -> drawing.Figure:
    """Draw a box over seeds for each method and m, a panel per task."""
    panels, looks = [], names.looks("method", ours.method)
    for title, part, _ in _parts(ours, paper, Plot("m", SHOTS, average=False)):
        if part.empty:
            continue
        panel, columns = drawing.Panel(title, SHOTS, "accuracy, %"), names.ordered("m", part.m)
        for place, (method, look) in enumerate(looks.items()):
            at = np.arange(len(columns)) + 0.3 * (place - (len(looks) - 1) / 2)
            values = [part.accuracy[(part.m == m) & (part.method == method)] for m in columns]
            lines = ("boxprops", "whiskerprops", "capprops", "medianprops", "flierprops")
            colours = dict.fromkeys(lines, {"color": look["color"], "markeredgecolor": look["color"]})
            panel.axes.boxplot(values, positions=at, widths=0.22, manage_ticks=False, **colours)
        panel.axes.set_xticks(range(len(columns)), [names.text("m", m) for m in columns])
        panels.append(panel.svg)
    legend = {names.method(method): look for method, look in looks.items()}
    return drawing.Figure(name, caption, tuple(panels), drawing.legend(legend))


def heatmaps(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame) -> drawing.Figure:
    """Draw the mean accuracy over seeds at each (|D|, |A|), a panel per method and task; its highest value is the darkest."""
    panels = []
    panel_axes = ("task",) if ours.method.nunique() == 1 else ("method", "task")
    for title, part, _ in _parts(ours, paper, Plot("m", SHOTS, panel=panel_axes, average=False)):
        values = part.pivot_table("accuracy", "demo_shots", "anchor_shots")
        panel = drawing.Panel(title, "|A|, anchors per class", "|D|, demonstrations per class")
        low, high = values.min().min(), values.max().max()
        panel.axes.pcolormesh(
            values, cmap="Blues", vmin=low, vmax=2 * high - low + 1e-9
        )  # Pale, so that text is readable.
        # A fixed dark grey, because black would follow the page's colour scheme and the cell does not.
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                panel.axes.text(column + 0.5, row + 0.5, f"{value:.1f}", ha="center", va="center", color="#17202a")
        panel.axes.set_xticks(np.arange(len(values.columns)) + 0.5, list(map(str, values.columns)))
        panel.axes.set_yticks(np.arange(len(values)) + 0.5, list(map(str, values.index)))
        panel.axes.grid(False)
        panels.append(panel.svg)
    return drawing.Figure(name, caption, tuple(panels))
