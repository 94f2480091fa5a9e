"""Measures of novelty: rows of a classifier's classes against texts that belong to none of them.

The measures are those of Larson et al. 2019, "An evaluation dataset for intent classification and out-of-scope
prediction": a row of a class that is rejected counts as a wrong prediction.
"""

import dataclasses
from typing import Any

import numpy as np
from sklearn import metrics

from knnprompt_jax.confidence.novelty import Novelty
from knnprompt_jax.report import drawing
from knnprompt_jax.report.measures import Measures, percent
from knnprompt_jax.report.page import Listing, Section

_NUM_BINS = 30


@dataclasses.dataclass(frozen=True, eq=False)
class ScopeMeasures:
    """Novelty of Q rows of the classes, and of M texts out of scope.

    Attributes:
        scores_Q: the novelty scores of the rows.
        scores_M: the novelty scores of the texts.
        right_Q: whether each row's prediction is right.
        is_rejected_Q: whether each row is rejected.
        is_rejected_M: whether each text is rejected.
        threshold: the p-value up to which texts are rejected.
    """

    scores_Q: np.ndarray
    scores_M: np.ndarray
    right_Q: np.ndarray
    is_rejected_Q: np.ndarray
    is_rejected_M: np.ndarray
    threshold: float

    @property
    def overall(self) -> dict[str, Any]:
        """The measures by name; shares are from 0 to 1."""
        truth = np.repeat([False, True], [len(self.scores_Q), len(self.scores_M)])
        return {
            "rows": len(self.scores_M),
            "area_under_curve": float(metrics.roc_auc_score(truth, np.concatenate([self.scores_Q, self.scores_M]))),
            "reject_novel": self.threshold,
            "recall": float(self.is_rejected_M.mean()),
            "in_scope_rejected": float(self.is_rejected_Q.mean()),
            "in_scope_accuracy": float((self.right_Q & ~self.is_rejected_Q).mean()),
        }


def measure(measured: Measures, scores_M: np.ndarray, novelty: Novelty, threshold: float) -> ScopeMeasures:
    """Return the measures of texts with these novelty scores beside those of the measured rows."""
    assert measured.novelty_Q is not None
    return ScopeMeasures(
        scores_Q=measured.novelty_Q,
        scores_M=scores_M,
        right_Q=measured.y_Q == measured.predicted_Q,
        is_rejected_Q=novelty.p_values(measured.novelty_Q) <= threshold,
        is_rejected_M=novelty.p_values(scores_M) <= threshold,
        threshold=threshold,
    )


def list_measures(measured: ScopeMeasures) -> Listing:
    """Return the measures with their meaning."""
    overall = measured.overall
    rejected = f"Share of rows of the classes that are rejected; {percent(measured.threshold)} is expected."
    rows = (
        ("Area under the curve", percent(overall["area_under_curve"]), "How often novelty ranks a pair rightly."),
        ("Out-of-scope recall", percent(overall["recall"]), "Share of the texts out of scope that are rejected."),
        ("In-scope rejected", percent(overall["in_scope_rejected"]), rejected),
        ("In-scope accuracy", percent(overall["in_scope_accuracy"]), "Rejected rows count as wrong."),
    )
    caption = f"Texts out of scope: {overall['rows']:,}; rejected: novelty p-value at most {measured.threshold:g}."
    return Listing(caption, ("Measure", "Value", "Meaning"), rows)


def build(measured: ScopeMeasures) -> Section:
    """Return the measures and the two distributions of novelty."""
    text = "Can novelty tell these rows from texts that belong to none of the classes?"
    listing = list_measures(measured)
    return Section("scope", "Out of scope", text, listings=(listing,), figures=(_draw(measured),))


def _draw(measured: ScopeMeasures) -> drawing.Figure:
    """Draw the distributions of the scores, as ranks among all of them: scores have no unit and long tails."""
    scores = np.concatenate([measured.scores_Q, measured.scores_M])
    ranks = np.searchsorted(np.sort(scores), scores, side="left") / len(scores)
    panel = drawing.Panel("", "novelty (percentile of all these texts)", "texts, %")
    bins = np.linspace(0, 100, _NUM_BINS + 1)
    names = {"rows of the classes": ranks[: len(measured.scores_Q)], "out of scope": ranks[len(measured.scores_Q) :]}
    styles = {name: drawing.line_style(index) | {"marker": ""} for index, name in enumerate(names)}
    for name, ranks_of in names.items():
        weights = np.full(len(ranks_of), 100 / len(ranks_of))
        heights, _ = np.histogram(100 * ranks_of, bins, weights=weights)
        panel.axes.stairs(heights, bins, color=styles[name]["color"], linestyle=styles[name]["linestyle"])
    if (is_rejected := np.concatenate([measured.is_rejected_Q, measured.is_rejected_M])).any():
        panel.axes.axvline(100 * ranks[is_rejected].min(), color=drawing.GREY, linestyle=":", linewidth=1)
    caption = "Distributions of novelty; texts to the right of the dotted line are rejected."
    return drawing.Figure("scope", caption, (panel.svg,), drawing.legend(styles))
