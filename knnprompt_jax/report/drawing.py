"""Figures as SVG that stands in the page itself: text stays text, colours follow the page's light or dark scheme."""

import contextlib
import dataclasses
import fractions
import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

PALETTE = ("#0b5cad", "#c2480f", "#1b7f4d", "#8a3fa0", "#8f6a00", "#007c8a", "#b8326f", "#5d6470")
GREY = PALETTE[-1]
_INK, _GRID = "#010101", "#020202"
_COLOURS = {colour: f"var(--c{index})" for index, colour in enumerate(PALETTE)}
_COLOURS |= {_INK: "currentColor", _GRID: "var(--grid)"}  # Variables of page.css.
_MARKERS, _DASHES = "os^Dvp*X", ("-", "--", "-.", ":")
_SIZE = (3.6, 2.7)  # Inches: as wide as a phone, two or three to a printed page.
_MOST_TICKS = 7
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "knnprompt_jax",
    "text.parse_math": False,  # A label may hold dollars.
    "font.size": 9,
    "axes.titlesize": 9,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.linewidth": 0.5,
    "grid.color": _GRID,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "errorbar.capsize": 2.5,
    **dict.fromkeys(("text.color", "xtick.color", "ytick.color", "axes.edgecolor", "axes.labelcolor"), _INK),
}
_CLEANINGS = (
    (r"<metadata>.*?</metadata>", ""),
    (r"<style.*?</style>", ""),  # It would hold for the whole page.
    (r"<!--.*?-->", ""),
    (r'<g id="[^"]*">', "<g>"),
    (r"font-family: [^;\"]*", "font-family: inherit"),
    (r'width="[\d.]+pt" height="[\d.]+pt" ', ""),
    (r"\s*\n\s*", "\n"),
)


def style() -> contextlib.AbstractContextManager:
    """Figures are made within it: matplotlib reads its settings wherever it draws."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


@dataclasses.dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    colour: str
    marker: str
    dash: str

    @property
    def style(self) -> dict[str, Any]:
        return {"color": self.colour, "marker": self.marker, "linestyle": self.dash}


@dataclasses.dataclass(frozen=True)
class Figure:
    """Panels of SVG under one caption, and a legend of (swatch, text)."""

    name: str
    caption: str
    panels: tuple[str, ...]
    legend: tuple[tuple[str, str], ...] = ()


def look(index: int) -> Look:
    """The index-th look: markers and dashes tell lines apart without colour too."""
    return Look(PALETTE[index % len(PALETTE)], _MARKERS[index % len(_MARKERS)], _DASHES[index % len(_DASHES)])


def legend(looks: dict[str, Look]) -> tuple[tuple[str, str], ...]:
    """The legend of lines by their names."""
    return tuple((swatch(look), name) for name, look in looks.items())


def swatch(look: Look) -> str:
    """A legend's sample of a line."""
    figure = _figure(figsize=(0.42, 0.16))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.plot([0, 1, 2], [0, 0, 0], **look.style, markevery=[1])
    return _svg(figure)


class Panel:
    """A pair of axes to draw on; `svg` is what was drawn."""

    def __init__(self, title: str = "", x: str = "", y: str = "", size: tuple[float, float] = _SIZE):
        self._figure = _figure(figsize=size, layout="constrained")
        self.axes = self._figure.add_subplot()
        self.axes.set(title=drawable(title), xlabel=x, ylabel=y)

    def ticks(self, values: Sequence[float], *, log: bool = True) -> "Panel":
        """An x axis, logarithmic unless told otherwise, with a tick at each value or, of many, at some."""
        shown = sorted(set(values))
        if len(shown) > _MOST_TICKS and not log:
            return self
        if log:
            self.axes.set_xscale("log", base=2)
        if len(shown) > _MOST_TICKS:
            shown = [2**power for power in range(64) if shown[0] <= 2**power <= shown[-1]]
            shown = shown[:: -(-len(shown) // _MOST_TICKS)]
        self.axes.set_xticks(shown, [_number(value) for value in shown])
        self.axes.minorticks_off()
        return self

    def level(self, direction: str, look: Look, score: Any) -> None:
        """A line across the panel at a `scores.Score`, "h" or "v", in a band of ± its standard deviation."""
        line, band = getattr(self.axes, f"ax{direction}line"), getattr(self.axes, f"ax{direction}span")
        line(score.mean, color=look.colour, linestyle=look.dash)
        if score.std:
            band(score.mean - score.std, score.mean + score.std, color=look.colour, alpha=0.12, linewidth=0)

    @property
    def svg(self) -> str:
        return _svg(self._figure)


def drawable(text: str) -> str:
    """The text without lone surrogates, which no font can measure."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _number(value: float) -> str:
    """A whole number, or a share as a fraction."""
    share = fractions.Fraction(value).limit_denominator(64)
    return f"{value:g}" if value >= 1 or share != value else f"{share}"


def _figure(**options: Any) -> Any:
    from matplotlib import figure  # Not at the top: grids of runs import this package, and need no library that draws.

    return figure.Figure(**options)


def _svg(figure: Any) -> str:
    """An SVG element to stand in a page, as wide as its place."""
    file = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # The reader's fonts have it, whether ours does or not.
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    for pattern, replacement in _CLEANINGS:
        svg = re.sub(pattern, replacement, svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), svg)  # Text keeps its digits.
    for colour, variable in _COLOURS.items():
        svg = svg.replace(colour, variable)
    return svg
