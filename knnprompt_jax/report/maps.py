"""A map of anchors and test rows that draws texts with similar states near each other.

Classes differ in the shape of their marks as well as in colour, so that no reader needs colours (page.html).
"""

import dataclasses
from typing import Any

import numpy as np

SIZE = (1000, 700)  # Width and height of the map in units of its SVG.
_MARGIN = 24
_MAX_LENGTH = 700  # Characters of a text that the page keeps.


@dataclasses.dataclass(frozen=True)
class Point:
    """An anchor (without a prediction) or a test row.

    Its nearest anchors are (index among the points, distance).
    """

    text: str
    label: str
    prediction: str = ""
    other: str = ""
    neighbours: tuple[tuple[int, float], ...] = ()

    @property
    def kind(self) -> str:
        """One of "anchor", "right" and "wrong"."""
        if not self.prediction:
            return "anchor"
        return "right" if self.prediction == self.label else "wrong"


@dataclasses.dataclass(frozen=True)
class Map:
    """Points with their positions [N, 2] in the map's units.

    Attributes:
        other: the method that made the predictions `Point.other`.
        cases: indices of points that are printed below the map.
    """

    title: str
    caption: str
    labels: tuple[str, ...]
    points: tuple[Point, ...]
    positions_N2: np.ndarray
    unit: str = "nats"
    other: str = ""
    cases: tuple[int, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """The data that the page's script shows about each point."""
        points = []
        for point in self.points:
            neighbours = [[index, float(f"{distance:.4g}")] for index, distance in point.neighbours]
            points.append(vars(point) | {"text": shorten(point.text), "neighbours": neighbours})
        return {"unit": self.unit, "other": self.other, "points": points}


def layout(features_NE: np.ndarray) -> np.ndarray:
    """Return the t-SNE of N rows, scaled to the map's units [N, 2]; equal rows always give the same map."""
    import threadpoolctl
    from sklearn import manifold

    perplexity = min(30.0, (len(features_NE) - 1) / 3)
    tsne = manifold.TSNE(perplexity=perplexity, init="pca", random_state=0)
    with threadpoolctl.threadpool_limits(1):  # With so few rows, threads would only wait for each other.
        flat_N2 = tsne.fit_transform(np.asarray(features_NE, np.float32))
    low_2 = flat_N2.min(0)
    span_2 = np.maximum(np.ptp(flat_N2, axis=0), 1e-9)
    return _MARGIN + (flat_N2 - low_2) / span_2 * (np.array(SIZE) - 2 * _MARGIN)


def shorten(text: str, max_length: int = _MAX_LENGTH) -> str:
    """Return the text, cut to a maximum length and marked if it is longer."""
    return text if len(text) <= max_length else f"{text[:max_length]} … ({len(text):,} characters)"
