"""A map of anchors and test rows that places texts with similar states near each other.

Classes differ in the shape of their marks as well as in colour, so that no reader needs colours.
"""

import dataclasses
from typing import Any

import numpy as np

from knnprompt_jax.report import drawing

SIZE = (1000, 700)  # Width and height of the map in units of its SVG.
_MARGIN = 24
_LONGEST = 700  # Characters of a text that the page keeps.
_SHAPES = (  # SVG paths around the origin, all of about the same area, the least alike first.
    "M-8 0A8 8 0 1 1 8 0 8 8 0 1 1-8 0z",  # Circle.
    "M0-11 10.5 8-10.5 8z",  # Triangle.
    "M-7-7H7V7H-7z",  # Square.
    "M-3.2-10H3.2V-3.2H10V3.2H3.2V10H-3.2V3.2H-10V-3.2H-3.2z",  # Plus.
    "M0-11 9 0 0 11-9 0z",  # Diamond.
    "M0-12 3.2-4.4 11.4-3.7 5.2 1.7 7.1 9.7 0 5.5-7.1 9.7-5.2 1.7-11.4-3.7-3.2-4.4z",  # Star.
    "M0 11 10.5-8-10.5-8z",  # Triangle, point down.
    "M-9.3-4.8-4.8-9.3 0-4.5 4.8-9.3 9.3-4.8 4.5 0 9.3 4.8 4.8 9.3 0 4.5-4.8 9.3-9.3 4.8-4.5 0z",  # Cross.
)


@dataclasses.dataclass(frozen=True)
class Point:
    """An anchor (without a prediction) or a test row, with its nearest anchors as (index among the points, distance)."""

    text: str
    label: str
    prediction: str = ""
    other: str = ""
    neighbours: tuple[tuple[int, float], ...] = ()

    @property
    def is_anchor(self) -> bool:
        return not self.prediction

    @property
    def kind(self) -> str:
        """anchor, right or wrong."""
        return "anchor" if self.is_anchor else "right" if self.prediction == self.label else "wrong"


@dataclasses.dataclass(frozen=True)
class Map:
    """Points with their places [N, 2] in the map's units.

    Attributes:
      row: the name of a point with a prediction.
      other: the method that made the predictions `Point.other`.
      cases: indices of points that are printed below the map.
    """

    name: str
    title: str
    caption: str
    labels: tuple[str, ...]
    points: tuple[Point, ...]
    places_N2: np.ndarray
    unit: str = "nats"
    row: str = "test row"
    other: str = ""
    cases: tuple[int, ...] = ()

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """The kinds of points with their legends; without plain anchors if the map has none."""
        legends = [("right", f"{self.row}, right (filled)"), ("wrong", f"{self.row}, wrong (hollow)")]
        has_anchors = any(point.is_anchor for point in self.points)
        return [("anchor", "anchor (pale)"), *legends] if has_anchors else legends

    def colour(self, label: str) -> str:
        """Return a label's CSS colour: the figures' palette if it has enough colours, else a colour wheel."""
        index, count = self.labels.index(label), len(self.labels)
        if count <= len(drawing.PALETTE):
            return f"var(--c{index})"
        # Consecutive classes of the same shape differ in lightness too.
        return f"oklch({(58, 72)[index // len(_SHAPES) % 2]}% 0.15 {360 * index / count:.0f})"

    def shape(self, label: str) -> str:
        """Return the SVG path of a label's mark; shapes repeat after eight labels."""
        return _SHAPES[self.labels.index(label) % len(_SHAPES)]

    @property
    def data(self) -> dict[str, Any]:
        """The data that the page's script shows about each point."""
        points = [
            {
                "text": shorten(point.text),
                "label": point.label,
                "prediction": point.prediction,
                "other": point.other,
                "neighbours": [[index, float(f"{distance:.4g}")] for index, distance in point.neighbours],
            }
            for point in self.points
        ]
        return {"unit": self.unit, "row": self.row.capitalize(), "other": self.other, "points": points}


def places(features_NE: np.ndarray) -> np.ndarray:
    """Return the t-SNE of N rows, scaled to the map's units [N, 2]; equal rows always give the same map."""
    import threadpoolctl
    from sklearn import manifold

    features_NE = np.asarray(features_NE, np.float32)
    count = len(features_NE)
    if count < 4 or features_NE.shape[1] < 2 or not np.ptp(features_NE, axis=0).any():  # t-SNE starts from a spread.
        flat_N2 = np.pad(features_NE, ((0, 0), (0, 2)))[:, :2]
    else:
        perplexity = min(30.0, (count - 1) / 3)
        with threadpoolctl.threadpool_limits(1):  # With so few rows, threads would only wait for each other.
            flat_N2 = manifold.TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(features_NE)
    low, span = flat_N2.min(0), np.maximum(np.ptp(flat_N2, axis=0), 1e-9)
    return _MARGIN + (flat_N2 - low) / span * (np.array(SIZE) - 2 * _MARGIN)


def shorten(text: str, longest: int = _LONGEST) -> str:
    """Return the text, cut to the longest length and marked if it is longer."""
    return text if len(text) <= longest else f"{text[:longest]} … ({len(text):,} characters)"
