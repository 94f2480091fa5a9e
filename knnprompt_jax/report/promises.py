"""Promised error rates on labelled rows: what was promised, the share of rows answered, and what held."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from knnprompt_jax.confidence import selective
from knnprompt_jax.report import drawing
from knnprompt_jax.report.measures import Measures, percent
from knnprompt_jax.report.page import Listing

MAX_ERRORS = (0.01, 0.02, 0.05, 0.1, 0.2)
_NO_THRESHOLD = "cannot be certified, even from more rows like these"
_MAX_MARKERS = 20  # Points of a curve that are marked.


@dataclasses.dataclass(frozen=True)
class Promise:
    """A promised error rate.

    Attributes:
        max_error: the largest share of wrong labels among the answered rows.
        probability: the probability from which on rows are answered; None if the promise cannot be certified.
        rows: the number of rows answered.
        wrong: the number of wrong answers.
        coverage: the share of rows answered.
        rows_needed: how many train rows like these would certify the promise; None if it is certified, or if
            `selective.MOST_ROWS` would not do.
    """

    max_error: float
    probability: float | None = None
    rows: int = 0
    wrong: int = 0
    coverage: float = 0.0
    rows_needed: int | None = None


def measure(p_N: np.ndarray, right_N: np.ndarray, measured: Measures) -> list[Promise]:
    """Return what promises give on measured rows; `p_N` and `right_N` are those of held-out rows (`selective`)."""
    promises = []
    for max_error in MAX_ERRORS:
        probability = selective.threshold(p_N, right_N, max_error)
        if probability is None:
            needed = selective.rows_needed(p_N, right_N, max_error)
            promises.append(Promise(max_error, rows_needed=needed))
            continue
        answered_Q = measured.confidence_Q >= probability
        wrong_Q = answered_Q & (measured.predicted_Q != measured.y_Q)
        counts = (int(answered_Q.sum()), int(wrong_Q.sum()))
        promises.append(Promise(max_error, probability, *counts, coverage=float(answered_Q.mean())))
    return promises


def list_promises(promises: Sequence[Promise]) -> Listing:
    """Return a row for each promise."""
    rows = []
    for promise in promises:
        needed = f"needs at least {promise.rows_needed:,} train rows" if promise.rows_needed else _NO_THRESHOLD
        cells = ("–", "–", f"none: {needed}")
        if promise.probability is not None:
            share = promise.wrong / max(1, promise.rows)
            wrong = f"{percent(share)} ({promise.wrong:,} of {promise.rows:,})"
            cells = (
                selective.rounded(promise.probability),
                percent(promise.coverage),
                wrong if promise.rows else "none",
            )
        rows.append((f"{100 * promise.max_error:g}\u00a0%", *cells))
    caption = (
        "Rows answered by predict --max_error=, and what held here. A promise is kept for at least "
        f"{100 * selective.CONFIDENCE:.0f}\u00a0% of the draws of train rows if new texts come from the same mixture."
    )
    return Listing(caption, ("Promise", "Probability at least", "Rows answered", "Wrong among them"), tuple(rows))


def draw(measured: Measures, promises: Sequence[Promise]) -> drawing.Figure:
    """Draw the share of wrong answers against coverage, and each promise above what held."""
    panel = drawing.Panel("", "rows answered, %", "wrong among them, %")
    curve = measured.coverage
    style = drawing.line_style(0) | ({"marker": ""} if len(curve) > _MAX_MARKERS else {})
    panel.axes.plot(100 * curve.coverage, 100 * (1 - curve.accuracy), **style)
    points = [(100 * promise.coverage, 100 * promise.max_error) for promise in promises if promise.rows]
    panel.axes.plot([x for x, _ in points], [y for _, y in points], color=drawing.GREY, linestyle=":", marker="_")
    for coverage, max_error in points:
        panel.axes.annotate(f"{max_error:g} %", (coverage, max_error), (0, 3), textcoords="offset points", fontsize=7)
    panel.axes.set(xlim=(0, 105))
    panel.axes.set_ylim(bottom=0)
    caption = (
        "Share of wrong answers among the rows of highest probability, by their share of all rows; dotted: promised error "
        "rates, kept where the curve is below."
    )
    return drawing.Figure("coverage", caption, (panel.svg,))
