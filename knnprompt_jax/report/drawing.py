"""Figures as SVG inside a page, with their text kept as text."""

import contextlib
import dataclasses
import io
import pathlib
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

PALETTE = ("#0b5cad", "#c2480f", "#1b7f4d", "#8a3fa0", "#8f6a00", "#007c8a", "#b8326f", "#5d6470")  # As in page.css.
GREY = PALETTE[-1]
_MARKERS = "os^Dvp*X"
_DASHES = ("-", "--", "-.", ":")
_SIZE = (3.6, 2.7)  # Inches: the width of a phone; two or three fit on a printed page.
_MAX_TICKS = 7
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
        self.axes.set(title=drawable(title), xlabel=x, ylabel=y)

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
    return re.sub(r"<[^>]+>", _shorten_numbers, svg)


def _shorten_numbers(tag: re.Match[str]) -> str:
    """Return a tag with two digits after each point; text between tags keeps its digits."""
    return re.sub(r"(\.\d\d)\d+", r"\1", tag[0])
