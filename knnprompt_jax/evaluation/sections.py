"""The sections of the page on an evaluation."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax.evaluation import writing
from knnprompt_jax.evaluation.measures import CONFIDENCE, Measures
from knnprompt_jax.report import drawing, outcomes
from knnprompt_jax.report.sections import Listing, Section
from knnprompt_jax.tasks.task import Example, Task

_MOST = 20  # Mistakes that are listed.
_TITLES = {
    "summary": ("In short", "One number for each question."),
    "classes": ("What is taken for what", "Each row by its label and by what it was taken for."),
    "calibration": ("Calibration", "Whether the probability of a prediction says how often it is right."),
    "coverage": (
        "Leaving out the unsure",
        "The accuracy that is left when only the surest rows are answered and the others go to people.",
    ),
    "mistakes": ("Surest mistakes", "Read these first: the label may be wrong, or a class may lack anchors."),
}


def build(measured: Measures, examples: Sequence[Example], task: Task) -> list[Section]:
    """The page's sections, in their order; classes are called by their label words where these differ."""
    words = dict(zip(task.labels, task.label_words, strict=True))
    names = [words[label] for label in measured.labels]
    labels = tuple(names if len(set(names)) == len(names) else measured.labels)
    caption = "Rows by their label (rows) and what they were taken for (columns)."
    with drawing.style():
        parts: dict[str, dict[str, Any]] = {
            "summary": {"listings": (_summary(measured),)},
            "classes": {
                "listings": (_classes(measured, labels),),
                "matrices": (outcomes.confusion(labels, measured.confusion_CC, caption),),
            },
            "calibration": {
                "figures": (
                    outcomes.reliability(measured.y_Q, measured.probabilities_QC, measured.predicted_Q, "rows"),
                )
            },
            "coverage": {"listings": (_coverage(measured),), "figures": (_risk(measured),)},
            "mistakes": {"listings": (_mistakes(measured, examples, task, labels),)},
        }
    return [Section(name, *_TITLES[name], {}, **part) for name, part in parts.items()]


def _summary(measured: Measures) -> Listing:
    low, high = measured.interval
    interval = f"Wilson's {100 * CONFIDENCE:.0f} % interval: {100 * low:.1f} to {100 * high:.1f} %."
    loss = "Mean −log of the probability of the true class, in nats."
    if measured.impossible:
        loss += f" {measured.impossible:,} rows had probability 0 and count as 36 each."
    rows = (
        ("Accuracy", _percent(measured.accuracy), interval),
        ("Commonest class", _percent(writing.commonest(measured)), "The accuracy of naming it every time."),
        (
            "Macro F1",
            _percent(measured.macro_f1),
            "Every class that occurs, as label or as prediction, counts the same, however rare.",
        ),
        ("Log loss", f"{measured.log_loss:.3f}", loss),
        ("Brier score", f"{measured.brier:.3f}", "Squared distance of probabilities and truth: 0 to 2."),
        (
            "Expected calibration error",
            f"{100 * measured.calibration_error:.1f} points",
            "Mean distance of probability and accuracy, in ten bins.",
        ),
    )
    return Listing(f"Measured on {len(measured.y_Q):,} rows.", ("Measure", "Value", "Meaning"), rows)


def _classes(measured: Measures, labels: Sequence[str]) -> Listing:
    rows = tuple(
        (label, f"{each.rows:,}", *map(_percent, (each.precision, each.recall, each.f1)))
        for label, each in zip(labels, measured.per_class, strict=True)
    )
    return Listing(
        "Recall: of the class's rows; precision: of those taken for it; F1: their harmonic mean.",
        ("Label", "Rows", "Precision", "Recall", "F1"),
        rows,
    )


def _coverage(measured: Measures) -> Listing:
    rows = tuple(
        (_percent(sure.coverage), f"{sure.probability:.2f}", _percent(sure.accuracy))
        for sure in dict.fromkeys(map(measured.at_coverage, writing.COVERAGES))
    )
    return Listing("Rows that are as sure count together.", ("Rows answered", "Probability at least", "Right"), rows)


def _risk(measured: Measures) -> drawing.Figure:
    """Accuracy against coverage."""
    panel, surest = drawing.Panel("", "rows answered, surest first, %", "right, %"), measured.surest
    style = {"color": drawing.look(0).colour, "marker": drawing.look(0).marker if len(surest) <= _MOST else ""}
    panel.axes.plot([100 * sure.coverage for sure in surest], [100 * sure.accuracy for sure in surest], **style)
    panel.axes.axhline(100 * measured.accuracy, color=drawing.GREY, linestyle=":", linewidth=1)
    panel.axes.set(xlim=(0, 105), ylim=(min(50, 95 * min(sure.accuracy for sure in surest)), 102))
    caption = "Accuracy on the surest rows, by how many of all these are; dotted: on all rows."
    return drawing.Figure("coverage", caption, (panel.svg,))


def _mistakes(measured: Measures, examples: Sequence[Example], task: Task, labels: Sequence[str]) -> Listing:
    wrong_Q, sure_Q = measured.y_Q != measured.predicted_Q, measured.confidence_Q
    order = [at for at in np.argsort(-sure_Q, kind="stable").tolist() if wrong_Q[at]][:_MOST]
    rows = tuple(
        (
            examples[at].source,
            task.retrieval_text(examples[at]),
            labels[measured.y_Q[at]],
            labels[measured.predicted_Q[at]],
            f"{sure_Q[at]:.2f}",
        )
        for at in order
    )
    count = int(wrong_Q.sum())
    shown = f"{len(rows)} of {count:,} mistakes" if count > len(rows) else f"{count:,} mistakes"
    return Listing(f"{shown}, surest first.", ("Row", "Text", "Label", "Taken for", "Probability"), rows)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"  # Which no line break parts.
