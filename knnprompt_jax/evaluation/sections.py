"""The sections of the page that shows the measures of a classifier, and the same as text, JSON and CSV."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import tables
from knnprompt_jax.report import drawing, measures
from knnprompt_jax.report.measures import Measures, percent
from knnprompt_jax.report.page import Listing, Section
from knnprompt_jax.tasks.task import Example, Task

COVERAGES = (0.5, 0.8, 0.9, 1.0)
_MOST = 20  # The most mistakes that are listed.


def to_dict(measured: Measures) -> dict[str, Any]:
    """Return all measures by name."""
    overall = dict(measured.overall)
    interval = {"low": overall.pop("accuracy_low"), "high": overall.pop("accuracy_high")}
    return {
        **overall,
        "accuracy_interval": {**interval, "confidence": measures.CONFIDENCE, "method": "wilson"},
        "classes": measured.per_class.to_dict("records"),
        "confusion": {"labels": list(measured.labels), "counts": measured.confusion_CC.tolist()},
        "risk_coverage": measured.coverage.to_dict("records"),
    }


def to_csv(measured: Measures) -> str:
    """Return a line per number: measure, class (empty for all), value."""
    rows: list[Any] = [("measure", "class", "value"), *((name, "", value) for name, value in measured.overall.items())]
    for record in measured.per_class.to_dict("records"):
        rows += [(name, tables.to_cell(record["label"]), value) for name, value in record.items() if name != "label"]
    return tables.to_csv(rows)


def build(measured: Measures, examples: Sequence[Example], task: Task) -> list[Section]:
    """Return the sections in order. Classes are named by their label words."""
    words = dict(zip(task.labels, task.label_words, strict=True))
    labels = tuple(words[label] for label in measured.labels)
    coverage = "Accuracy if only the rows with the highest probabilities are answered, and people answer the others."
    mistakes = "The most probable predictions come first: check these labels, or add anchors like these texts."
    wrong, by_share = _mistakes(measured, examples, task, labels), _coverage(measured)
    with drawing.style():
        return [
            Section("summary", "Summary", "All rows together.", listings=(_summary(measured),)),
            Section("mistakes", "Mistakes", mistakes, listings=(wrong,)),
            measures.confusion(measured, labels),
            Section(
                "coverage", "Accuracy against coverage", coverage, listings=(by_share,), figures=(_risk(measured),)
            ),
            measures.calibration(measured),
        ]


def describe(measured: Measures) -> str:
    """Return the measures of all rows and of each class as text."""
    summary, *listings = _summary(measured), _coverage(measured), measures.list_classes(measured, measured.labels)
    lines = [f"{name}: {value}. {meaning}" for name, value, meaning in summary.rows]
    described = [f"{listing.caption}\n\n{tables.render(listing.headers, listing.rows)}" for listing in listings]
    return "\n\n".join([f"{summary.caption}\n\n" + "\n".join(lines), *described])


def _summary(measured: Measures) -> Listing:
    overall = measured.overall
    low, high = 100 * overall["accuracy_low"], 100 * overall["accuracy_high"]
    loss = "Mean −log of the probability of the true class, in nats."
    if overall["impossible_rows"]:
        loss += f" {overall['impossible_rows']:,} of the rows had probability 0 and count as 36 nats."
    interval = f"Wilson's {100 * measures.CONFIDENCE:.0f} % interval: {low:.1f} to {high:.1f} %."
    error = f"{100 * overall['expected_calibration_error']:.1f} points"
    rows = (
        ("Accuracy", percent(overall["accuracy"]), interval),
        ("Most common class", percent(overall["commonest_class"]), "The accuracy of always predicting it."),
        ("Macro F1", percent(overall["macro_f1"]), "Mean F1 of all classes that occur, as label or as prediction."),
        ("Log loss", f"{max(0, overall['log_loss']):.3f}", loss),
        (
            "Brier score",
            f"{overall['brier_score']:.3f}",
            "Mean squared error of the probabilities, from 0 (best) to 2.",
        ),
        ("Expected calibration error", error, "Mean difference between probability and accuracy, in ten bins."),
    )
    return Listing(f"Rows measured: {overall['rows']:,}.", ("Measure", "Value", "Meaning"), rows)


def _coverage(measured: Measures) -> Listing:
    rows = tuple(
        (percent(point.coverage), f"{point.probability:.2f}", percent(point.accuracy))
        for point in measured.at_coverages(COVERAGES).itertuples()
    )
    headers = ("Rows answered", "Probability at least", "Accuracy")
    caption = "Accuracy if only the most confident predictions are kept. Rows of equal probability stay together."
    return Listing(caption, headers, rows)


def _risk(measured: Measures) -> drawing.Figure:
    """Draw accuracy against coverage."""
    panel, curve = drawing.Panel("", "rows answered, %", "accuracy, %"), measured.coverage
    style = drawing.look(0) | ({"marker": ""} if len(curve) > _MOST else {})
    panel.axes.plot(100 * curve.coverage, 100 * curve.accuracy, **style)
    panel.axes.axhline(100 * measured.overall["accuracy"], color=drawing.GREY, linestyle=":", linewidth=1)
    panel.axes.set(xlim=(0, 105), ylim=(min(50, 95 * curve.accuracy.min()), 102))
    caption = "Accuracy on the rows of highest probability, by their share of all rows; dotted: on all rows."
    return drawing.Figure("coverage", caption, (panel.svg,))


def _mistakes(measured: Measures, examples: Sequence[Example], task: Task, labels: Sequence[str]) -> Listing:
    wrong_Q, p_Q = measured.y_Q != measured.predicted_Q, measured.confidence_Q
    order = [at for at in np.argsort(-p_Q, kind="stable").tolist() if wrong_Q[at]][:_MOST]
    ids = tuple(examples[0].ids) if examples else ()
    rows = tuple(
        (
            *(str(row.ids.get(name, "")) for name in ids),
            *(
                row.source.rpartition(":")[2].strip(),
                task.retrieval_text(row),
                labels[true],
                labels[predicted],
                f"{p:.2f}",
            ),
        )
        for row, true, predicted, p in (
            (examples[at], measured.y_Q[at], measured.predicted_Q[at], p_Q[at]) for at in order
        )
    )
    count = int(wrong_Q.sum())
    number = f"{len(rows)} of {count:,} mistakes" if count > len(rows) else f"{count:,} mistakes"
    return Listing(f"{number}.", (*ids, "Line", "Text", "Label", "Prediction", "Probability"), rows)
