"""Figures as SVG inside a page, with their text kept as text; curves, box plots and heatmaps of accuracies."""

import contextlib
import dataclasses
import io
import pathlib
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from knnprompt_jax.report import names, published, results

SHOTS = "m, train rows per class"
PALETTE = ("#0b5cad", "#c2480f", "#1b7f4d", "#8a3fa0", "#8f6a00", "#007c8a", "#b8326f", "#5d6470")  # As in page.css.
GREY = PALETTE[-1]
_MARKERS = "os^Dvp*X<"  # One more than colours: no two of the first 72 lines are alike.
_DASHES = ("-", "--", "-.", ":")
_SIZE = (3.6, 2.7)  # Inches: the width of a phone; two or three fit on a printed page.
_MAX_TICKS = 7
_BARS = "Bars: ± one sample standard deviation over seeds."
_BOX_PARTS = ("boxprops", "whiskerprops", "capprops", "medianprops", "flierprops")
_HOLLOW = {"markerfacecolor": "none", "linestyle": ":", "linewidth": 0.9, "alpha": 0.7}
_CLEANINGS = (
    (r"<metadata>.*?</metadata>", ""),
    (r"<style.*?</style>", ""),  # It would apply to the whole page.
    (r"<!--.*?-->", ""),  # It may hold any text.
    (r"font-family: [^;\"]*", "font-family: inherit"),
    (r'width="[\d.]+pt" height="[\d.]+pt" ', ""),
)


def style() -> contextlib.AbstractContextManager:
    """Return the context in which figures are drawn: matplotlib reads its settings while it draws."""
    import matplotlib

    return matplotlib.rc_context(fname=pathlib.Path(__file__).with_name("page") / "figures.mplstyle")


@dataclasses.dataclass(frozen=True)
class Figure:
    """Panels of SVG under one caption, and a legend of (swatch, text)."""

    name: str
    caption: str
    panels: tuple[str, ...]
    legend: tuple[tuple[str, str], ...] = ()


def line_style(index: int) -> dict[str, Any]:
    """Return matplotlib's options of the index-th line: lines differ in marker and dash as well as in colour."""
    choices = {"color": PALETTE, "marker": _MARKERS, "linestyle": _DASHES}
    return {name: values[index % len(values)] for name, values in choices.items()}


def legend(line_styles: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return a swatch and a name for each line."""
    entries = []
    for name, options in line_styles.items():
        figure = _figure(figsize=(0.42, 0.16))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        axes.plot([0, 1, 2], [0, 0, 0], **options, markevery=[1])
        entries.append((_svg(figure), name))
    return tuple(entries)


class Panel:
    """A pair of axes to draw on; `svg` is the drawing."""

    def __init__(self, title: str = "", x: str = "", y: str = ""):
        self._figure = _figure(figsize=_SIZE, layout="constrained")
        self.axes = self._figure.add_subplot()
        self.axes.set(title=textwrap.fill(drawable(title), 40), xlabel=x, ylabel=y)  # Wider: cut off.

    def set_ticks(self, values: Iterable[float], *, log: bool = True) -> None:
        """Put a tick at each value or, if there are many, at some; with `log`, make the x axis logarithmic."""
        if log:
            self.axes.set_xscale("log", base=2)
            self.axes.xaxis.set_major_formatter("{x:g}")
        ticks = sorted(set(values))
        if len(ticks) <= _MAX_TICKS:
            self.axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
        self.axes.minorticks_off()

    @property
    def svg(self) -> str:
        """The drawing as an SVG element."""
        return _svg(self._figure)


def drawable(text: str) -> str:
    """Return the text without lone surrogates, which no font can measure."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _figure(**options: Any) -> Any:
    from matplotlib import figure  # Imported late: runs of a grid import this package without the drawing library.

    return figure.Figure(**options)


def _svg(figure: Any) -> str:
    """Return an SVG element as wide as its container in the page."""
    file = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # The reader's fonts may have it even if ours do not.
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    for pattern, replacement in _CLEANINGS:
        svg = re.sub(pattern, replacement, svg, flags=re.DOTALL)
    # Two digits after each point; text between tags keeps its digits.
    return re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), svg)


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


def curves(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot) -> Figure:
    """Draw accuracies along an axis; hollow marks are the paper's."""
    line_styles = _line_styles(plot.line, [*ours[plot.line], *paper[plot.line]])
    panels = [_curves(title, part, numbers, plot, line_styles) for title, part, numbers in _parts(ours, paper, plot)]
    models = ", ".join(map(names.model, names.ordered("model", paper.model)))
    marks = f" Hollow marks on dotted lines: the paper's numbers of {models}." if models else ""
    return Figure(name, f"{caption} {_BARS}{marks}", tuple(panels), _legend(plot.line, line_styles))


def _parts(ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Yield the title, records and printed numbers of each panel; models that the paper lacks get all its numbers."""
    models = {"": ours} if plot.line == "model" else results.by_model(ours)
    for model, runs in models.items():
        prefix = f"{names.model(model)}, " if len(models) > 1 else ""
        numbers = paper[paper.model.isin(runs.model)] if model in set(paper.model) else paper
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

    panel = Panel(title, plot.label, "error, %" if plot.law else "accuracy, %")
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
    panel: Panel, accuracy: Mapping[float, float], plot: Plot, line_style: dict, bars: np.ndarray | None = None
) -> None:
    """Draw a line of accuracies by x; with a law, draw errors and the line of the law.

    Args:
        bars: half the heights of the error bars.
    """
    x = np.array(list(accuracy), float)
    y = np.array(list(accuracy.values()), float)
    points = line_style
    if plot.law:
        y = 100 - y
        points = line_style | {"linestyle": "none"}
    panel.axes.errorbar(x, y, bars, **points)
    if plot.law and (law := plot.law(accuracy)):
        panel.axes.plot(x, law.error(x), **line_style | {"marker": ""})


def boxes(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot) -> Figure:
    """Draw a box over seeds for each x and line."""
    panels = []
    line_styles = _line_styles(plot.line, ours[plot.line])
    for title, part, _ in _parts(ours, paper, plot):
        panel = Panel(title, plot.label, "accuracy, %")
        columns = names.ordered(plot.x, part[plot.x])
        for index, (value, line_style) in enumerate(line_styles.items()):
            positions = np.arange(len(columns)) + 0.3 * (index - (len(line_styles) - 1) / 2)
            values = [part.accuracy[(part[plot.x] == x) & (part[plot.line] == value)] for x in columns]
            color = {"color": line_style["color"], "markeredgecolor": line_style["color"]}
            colors = dict.fromkeys(_BOX_PARTS, color)
            panel.axes.boxplot(values, positions=positions, widths=0.22, manage_ticks=False, **colors)
        panel.axes.set_xticks(range(len(columns)), [names.text(plot.x, x) for x in columns])
        panels.append(panel.svg)
    return Figure(name, caption, tuple(panels), _legend(plot.line, line_styles))


def heatmaps(name: str, caption: str, ours: pd.DataFrame, paper: pd.DataFrame, plot: Plot) -> Figure:
    """Draw the mean accuracy over seeds at each (line, x); the highest value of a panel is the darkest."""
    panels = []
    for title, part, _ in _parts(ours, paper, plot):
        values = part.pivot_table("accuracy", plot.line, plot.x)
        panel = Panel(title, plot.label, names.HEADERS[plot.line])
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
    return Figure(name, caption, tuple(panels))


def _legend(axis: str, line_styles: Mapping[Any, Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return a swatch and a name for each line; numbers have no name but that of their axis."""
    prefix = "" if axis in names.TITLES else f"{names.HEADERS.get(axis, axis)} = "
    return legend({prefix + names.text(axis, value): options for value, options in line_styles.items()})


def _line_styles(axis: str, values: Iterable[Any]) -> dict[Any, dict[str, Any]]:
    """Return the line style of each value; kNN Prompting and in-context learning have the same in every figure."""
    found = names.ordered(axis, values)
    fixed = ["knn", "icl"] if axis == "method" else []
    indices = {value: index for index, value in enumerate(dict.fromkeys([*fixed, *found]))}
    return {value: line_style(indices[value]) for value in found}
