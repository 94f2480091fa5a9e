"""A number for each place on two axes, as colour and as text."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax.report import drawing, names, scores
from knnprompt_jax.report.scores import Record

_LIGHTEST, _DARKEST = np.array((232, 240, 250)), np.array((11, 61, 122))


def splits(name: str, caption: str, records: Sequence[Record]) -> drawing.Figure:
    """Mean accuracy over seeds at each (|D|, |A|): a panel for each task."""
    panels = []
    for title, part in names.panels(records):
        groups = scores.pool(part, "anchor_shots", "demo_shots")
        cells = {place: scores.accuracy(group).mean for place, group in groups.items()}
        panels.append(heatmap(title, "|A|, anchors per class", "|D|, demonstrations per class", cells))
    return drawing.Figure(name, caption, tuple(panels))


def heatmap(title: str, x: str, y: str, cells: Mapping[tuple[Any, Any], float]) -> str:
    """A cell for each (column, row): the panel's lowest number is the lightest, its highest the darkest."""
    columns, rows = (names.ordered("", [place[axis] for place in cells]) for axis in (0, 1))
    panel = drawing.Panel(title, x, y)
    placed = {(columns.index(column), rows.index(row)): value for (column, row), value in cells.items()}
    _colour(panel, placed)
    panel.axes.set_xticks(range(len(columns)), map(str, columns))
    panel.axes.set_yticks(range(len(rows)), map(str, rows))
    panel.axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-0.5, len(rows) - 0.5))
    return panel.svg


def _colour(panel: drawing.Panel, placed: Mapping[tuple[int, int], float]) -> None:
    """A coloured square with its number at each place."""
    from matplotlib import patches

    low, high = min(placed.values()), max(placed.values())
    for at, value in placed.items():
        share = (value - low) / (high - low) if high > low else 0.0
        rgb = (1 - share) * _LIGHTEST + share * _DARKEST
        panel.axes.add_patch(patches.Rectangle((at[0] - 0.5, at[1] - 0.5), 1, 1, facecolor=tuple(rgb / 255)))
        colour = "white" if share > 0.5 else "#17202a"  # Black would follow the page's scheme, and the square does not.
        panel.axes.text(*at, f"{value:.1f}", ha="center", va="center", fontsize=8, color=colour)
    panel.axes.grid(False)
