"""A map of anchors and test rows: what is near in the model's states is near on paper."""

import dataclasses
import json
from typing import Any

import numpy as np

from knnprompt_jax.report import marks

SIZE = (1000, 700)  # Of the map, in units of its SVG.
_MARGIN = 24
_LONGEST = 700  # Characters of a text that the page holds.


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

    `row` says what a point with a prediction is; `other` names whose prediction `Point.other` is; `cases` are printed below the map.
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
        """The kinds of points with what the legend says of them; that of anchors only where there are any."""
        told = {
            "anchor": "anchor (pale)",
            "right": f"{self.row}, right (filled)",
            "wrong": f"{self.row}, wrong (hollow)",
        }
        anchors = any(point.is_anchor for point in self.points)
        return [(kind, text) for kind, text in told.items() if kind != "anchor" or anchors]

    def colour(self, label: str) -> str:
        """A label's CSS colour."""
        return marks.colour(self.labels.index(label), len(self.labels))

    def shape(self, label: str) -> str:
        """The SVG path of a label's mark."""
        return marks.shape(self.labels.index(label))

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script shows of each point."""
        return {
            "unit": self.unit,
            "row": self.row.capitalize(),
            "other": self.other,
            "points": [
                {
                    "text": shorten(point.text),
                    "label": point.label,
                    "prediction": point.prediction,
                    "other": point.other,
                    "neighbours": [[index, float(f"{distance:.4g}")] for index, distance in point.neighbours],
                }
                for point in self.points
            ],
        }


def places(features_NE: np.ndarray) -> np.ndarray:
    """t-SNE of N rows, scaled to the map's units [N, 2]; the same rows always give the same map."""
    import threadpoolctl
    from sklearn import manifold

    features_NE = np.asarray(features_NE, np.float32)
    count = len(features_NE)
    if count < 4 or features_NE.shape[1] < 2 or not np.ptp(features_NE, axis=0).any():  # t-SNE needs a spread to start.
        flat_N2 = np.pad(features_NE, ((0, 0), (0, 2)))[:, :2]
    else:
        perplexity = min(30.0, (count - 1) / 3)
        with threadpoolctl.threadpool_limits(1):  # So few rows: threads would only wait for each other.
            flat_N2 = manifold.TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(features_NE)
    low, span = flat_N2.min(0), np.maximum(np.ptp(flat_N2, axis=0), 1e-9)
    return _MARGIN + (flat_N2 - low) / span * (np.array(SIZE) - 2 * _MARGIN)


def shorten(text: str, longest: int = _LONGEST) -> str:
    return text if len(text) <= longest else f"{text[:longest]} … ({len(text):,} characters)"


def script_json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end the element or the line."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.translate({ord(character): f"\\u{ord(character):04x}" for character in "<>&"})
