"""Measure a saved classifier on labelled rows: measures as text, as JSON, as CSV and on a page."""

import dataclasses
import json
import math
import pathlib
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging

from knnprompt_jax import characters, errors, files, parallel, progress, states, tables
from knnprompt_jax.classifier import inputs, saving
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.commands import unlabelled
from knnprompt_jax.confidence import novelty
from knnprompt_jax.experts.expert import Readings
from knnprompt_jax.prompts import layout
from knnprompt_jax.report import drawing, measures, page, promises, scope
from knnprompt_jax.report.measures import Measures, percent
from knnprompt_jax.report.page import Listing, Section
from knnprompt_jax.report.promises import Promise
from knnprompt_jax.report.scope import ScopeMeasures
from knnprompt_jax.settings import commands
from knnprompt_jax.tasks import defects, sources
from knnprompt_jax.tasks.task import Example, Task

COVERAGES = (0.5, 0.8, 0.9, 1.0)
_MAX_MISTAKES = 20  # Mistakes that are listed.
_MIN_SHIFT = 0.1  # Total variation between shares of classes from which on `evaluate` gives advice.


def run(settings: commands.EvaluationSettings) -> str:
    """Classify the rows, write the measures, and return the text to print; an interrupted run resumes from the cache.

    Raises:
        UserError: no such classifier, file or model; a row without its texts, or with a label that the classifier does
            not know; a text out of scope with a label that it knows; another process writes to the output folder.
    """
    with page.folder(settings.output) as output:
        return _run(settings, output)


def _run(settings: commands.EvaluationSettings, output: pathlib.Path) -> str:
    saved = saving.read(pathlib.Path(settings.classifier)).with_prior(settings.prior)
    if no_page := page.missing_libraries():
        logging.warning("no page will be written: %s", no_page)
    task = saved.content.task
    examples = _load_rows(settings, saved)
    others = _load_out_of_scope(settings, saved) if settings.out_of_scope else []
    fitted = saved.restore(saved.load_model(parallel.make_mesh(0, settings.mesh.model)))
    cache = states.open_disk_cache(settings.cache_gb)
    measured = measure(fitted, examples, cache)
    promised = measure_promises(fitted, measured)
    of_scope = measure_scope(fitted, measured, others, settings.reject_novel, cache) if others else None
    about = {"classifier": settings.classifier, "input": settings.input, "model": fitted.model.name}
    content = json.dumps({**about, **to_dict(measured, promised, of_scope)}, indent=1, ensure_ascii=False) + "\n"
    files.write(output / "measures.json", content)
    files.write(output / "measures.csv", to_csv(measured))
    mistakes = to_mistakes(measured, examples, task)
    files.write(output / "mistakes.csv", tables.to_csv(mistakes).encode("utf-8", "backslashreplace"))
    text = (
        f"{len(examples):,} rows of {settings.input}, classified by {fitted.model.name} with {len(fitted.anchors):,} anchors "
        f"and {len(fitted.demonstrations)} demonstrations."
    )
    described = "\n\n".join([describe(measured, promised, of_scope), *advise_on_prior(measured, fitted)])
    title = f"{saved.path.name} on {pathlib.Path(settings.input).name}"
    if no_page:
        (output / "index.html").unlink(missing_ok=True)  # An earlier page has other measures.
        return described
    sections = build(measured, promised, examples, task, of_scope)
    return f"{described}\n\npage: {page.write(output, title, text, sections)}"


def measure(fitted: Fitted, examples: Sequence[Example], cache: states.Cache | None = None) -> Measures:
    """Measure a classifier on labelled examples; cache their states. Classes are in the order of `Fitted.classes`."""
    predicted: list[Any] = []
    probabilities = []
    novelty_scores = []
    for readings in _read(fitted, examples, cache):
        predictions = fitted.answer(readings, with_neighbours=False)
        predicted += predictions.labels.tolist()
        probabilities.append(np.asarray(predictions.probabilities, np.float64))
        novelty_scores.append(fitted.novelty_scores(readings))
    labels = tuple(map(str, fitted.classes.tolist()))
    class_of = {label: index for index, label in enumerate(labels)}
    return Measures(
        labels=labels,
        y_Q=np.array([class_of[example.label] for example in examples]),
        predicted_Q=np.array([class_of[str(label)] for label in predicted]),
        probabilities_QC=np.concatenate(probabilities),
        novelty_Q=np.concatenate(novelty_scores),
    )


def measure_promises(fitted: Fitted, measured: Measures) -> list[Promise]:
    """Return what promised error rates give on the measured rows; nothing, with a warning, if none can be promised."""
    try:
        return promises.measure(*fitted.held_out(), measured)
    except errors.UserError as error:
        logging.warning("%s", error)
        return []


def measure_scope(
    fitted: Fitted, measured: Measures, others: Sequence[Example], threshold: float, cache: states.Cache | None = None
) -> ScopeMeasures:
    """Measure how well novelty tells the measured rows from texts out of scope; cache their states."""
    scores_M = np.concatenate([fitted.novelty_scores(readings) for readings in _read(fitted, others, cache)])
    return scope.measure(measured, scores_M, fitted.scope, threshold)


def _read(fitted: Fitted, examples: Sequence[Example], cache: states.Cache | None) -> Iterator[Readings]:
    """Yield the readings of the examples batch by batch; report progress, and warn of prompts that were cut."""
    num_read = 0
    num_truncated = 0
    with progress.whole(len(examples), "row", len(fitted.content.views)) as settle:
        for batch in unlabelled.prefetch(unlabelled.batches(examples, fitted)):
            yield fitted.read_prompts(batch.queries, cache, title="")
            num_read += len(batch.examples)
            num_truncated += batch.queries.num_truncated
            settle(num_read)
    layout.warn_truncated(num_truncated, len(examples), fitted.model.context)


def _load_rows(settings: commands.EvaluationSettings, saved: saving.Saved) -> list[Example]:
    """Return the labelled rows; warn if the classifier was fitted to some of them."""
    examples = sources.load_rows(
        saved.content.task,
        "evaluation",
        path=settings.input,
        on_bad=settings.on_bad,
        text_columns=settings.text_columns,
        **settings.file_options(saved.content.file_options),
    )
    if found := defects.matches(examples, saved.content.rows):
        repeat = "repeats" if len(found) == 1 else "repeat"
        message = "%d of %d rows %s a text that the classifier was fitted to, so scores are too high; first: %s"
        logging.warning(message, len(found), len(examples), repeat, found[0].place)
    return examples


def _load_out_of_scope(settings: commands.EvaluationSettings, saved: saving.Saved) -> list[Example]:
    """Return the texts out of scope.

    Raises:
        UserError: a row is bad or has a label of the classifier, there is no row, or the classifier has too few rows
            for the p-value.
    """
    novelty.check_threshold(settings.reject_novel, saved.content.num_novelty_rows)
    task = saved.content.task
    options = settings.file_options(saved.content.file_options)
    path = settings.out_of_scope
    others = []
    for row in unlabelled.read(task, path, "", options["encoding"], settings.on_bad, settings.text_columns):
        if isinstance(row, errors.UserError):
            raise row
        label = row.extra.get(options["label_column"])
        if label is not None and (known := task.find_label(str(label), options["merge_labels"])) is not None:
            raise errors.UserError(
                f"{row.place}: {known!r} is a label of the classifier; leave its rows out of --out_of_scope"
            )
        others.append(row)
    if not others:
        raise errors.UserError(f"{path}: has no rows")
    return others


def advise_on_prior(measured: Measures, fitted: Fitted) -> list[str]:
    """Return a remark if classes are not as common among the measured rows as the classifier assumes; or nothing.

    The accuracy with the measured shares needs no more predictions: probabilities are multiplied by the shares. If a
    class has no rows, there is no remark: a share of 0 would rule it out.
    """
    if fitted.pool is None:
        return []
    order_C = inputs.label_order(fitted.content.labels_C)
    counts_C = np.bincount(fitted.content.y_N, minlength=len(order_C))
    assumed_C = (counts_C / counts_C.sum() if fitted.prior_C is None else fitted.prior_C)[order_C]
    shares_C = np.bincount(measured.y_Q, minlength=len(order_C)) / len(measured.y_Q)
    if not shares_C.all() or np.abs(shares_C - assumed_C).sum() / 2 < _MIN_SHIFT:
        return []
    ratio_C = np.divide(shares_C, assumed_C, out=np.zeros(len(order_C)), where=assumed_C > 0)
    accuracy = np.mean((measured.probabilities_QC * ratio_C).argmax(-1) == measured.y_Q)
    prior = ",".join(f"{label}={share:.3g}" for label, share in zip(measured.labels, shares_C, strict=True))
    return [
        "Classes are not as common in these rows as the classifier assumes. If new rows are like these, set their shares: "
        f"--class_prior={shlex.quote(prior)} would give accuracy {percent(accuracy)} here instead of "
        f"{percent(measured.overall['accuracy'])}."
    ]


def to_dict(
    measured: Measures, promised: Sequence[Promise] = (), of_scope: ScopeMeasures | None = None
) -> dict[str, Any]:
    """Return all measures by name."""
    overall = dict(measured.overall)
    interval = {"low": overall.pop("accuracy_low"), "high": overall.pop("accuracy_high")}
    return {
        **overall,
        "accuracy_interval": {**interval, "confidence": measures.CONFIDENCE, "method": "wilson"},
        "classes": measured.per_class.to_dict("records"),
        "confusion": {"labels": list(measured.labels), "counts": measured.confusion_CC.tolist()},
        "risk_coverage": measured.coverage.to_dict("records"),
        "promises": [dataclasses.asdict(promise) for promise in promised],
        "out_of_scope": of_scope and of_scope.overall,
    }


def to_csv(measured: Measures) -> str:
    """Return a line per number: measure, class (empty for all), value."""
    rows: list[Any] = [("measure", "class", "value"), *((name, "", value) for name, value in measured.overall.items())]
    for record in measured.per_class.to_dict("records"):
        rows += [(name, tables.to_cell(record["label"]), value) for name, value in record.items() if name != "label"]
    return tables.to_csv(rows)


def to_mistakes(measured: Measures, examples: Sequence[Example], task: Task) -> list[list[Any]]:
    """Return a header and a row per mistake, the most probable predictions first, for a CSV file."""
    columns = ("line", "text", "label", "prediction", "probability", "label_probability")
    ids = _id_columns(examples)
    rows: list[list[Any]] = [[*map(tables.to_cell, ids), *columns]]
    for index in _mistakes_by_probability(measured):
        true = measured.y_Q[index]
        predicted = measured.predicted_Q[index]
        texts = [*_cells(examples[index], ids, task), measured.labels[true], measured.labels[predicted]]
        probabilities_C = measured.probabilities_QC[index]
        rows.append([*map(tables.to_cell, texts), probabilities_C[predicted], probabilities_C[true]])
    return rows


def _mistakes_by_probability(measured: Measures) -> list[int]:
    """Return the rows with a wrong prediction, the most probable predictions first."""
    order_Q = np.argsort(-measured.confidence_Q, kind="stable")
    return order_Q[(measured.y_Q != measured.predicted_Q)[order_Q]].tolist()


def _id_columns(examples: Sequence[Example]) -> tuple[str, ...]:
    return tuple(examples[0].ids) if examples else ()


def _cells(example: Example, ids: Sequence[str], task: Task) -> list[str]:
    """Return the ids, the line in the file and the text of a row."""
    line = example.place.rpartition(":")[2].strip()
    return [*(str(example.ids.get(name, "")) for name in ids), line, task.retrieval_text(example)]


def build(
    measured: Measures,
    promised: Sequence[Promise],
    examples: Sequence[Example],
    task: Task,
    of_scope: ScopeMeasures | None = None,
) -> list[Section]:
    """Return the sections in order."""
    titles = dict(zip(task.labels, task.titles, strict=True))
    labels = tuple(titles[label] for label in measured.labels)
    coverage = (
        "Wrong answers if only the rows with the highest probabilities are answered, and people answer the others."
    )
    mistakes = "The most probable predictions come first: check these labels, or add anchors like these texts."
    with drawing.style():
        return [
            Section("summary", "Summary", "All rows together.", listings=(_summary(measured),)),
            Section("mistakes", "Mistakes", mistakes, listings=(_mistakes(measured, examples, task, labels),)),
            measures.confusion(measured, labels),
            Section(
                "coverage",
                "Error against coverage",
                coverage,
                listings=(*_promises(promised), _coverage(measured)),
                figures=(promises.draw(measured, promised),),
            ),
            measures.calibration(measured),
            *([scope.build(of_scope)] if of_scope else []),
        ]


def describe(measured: Measures, promised: Sequence[Promise] = (), of_scope: ScopeMeasures | None = None) -> str:
    """Return the measures of all rows and of each class as text."""
    summary = _summary(measured)
    classes = measures.list_classes(measured, characters.shown(measured.labels))
    listings = [*_promises(promised), _coverage(measured), classes]
    described = [f"{listing.caption}\n\n{tables.render(listing.headers, listing.rows)}" for listing in listings]
    others = [_as_lines(scope.list_measures(of_scope))] if of_scope else []
    return "\n\n".join([_as_lines(summary), *described, *others])


def _as_lines(listing: Listing) -> str:
    lines = [f"{name}: {value}. {meaning}" for name, value, meaning in listing.rows]
    return f"{listing.caption}\n\n" + "\n".join(lines)


def _summary(measured: Measures) -> Listing:
    overall = measured.overall
    low = 100 * overall["accuracy_low"]
    high = 100 * overall["accuracy_high"]
    loss = "Mean −log of the probability of the true class, in nats."
    if overall["impossible_rows"]:
        loss += f" {overall['impossible_rows']:,} of the rows had probability 0 and count as 36 nats."
    interval = f"Wilson's {100 * measures.CONFIDENCE:.0f} % interval: {low:.1f} to {high:.1f} %."
    error = f"{100 * overall['expected_calibration_error']:.1f} points"
    counts = measured.per_class.rows
    smallest = f"the smallest has {counts[counts > 0].min():,} of the rows"
    rows = (
        ("Accuracy", percent(overall["accuracy"]), interval),
        ("Most common class", percent(overall["commonest_class"]), "The accuracy of always predicting it."),
        (
            "Macro F1",
            percent(overall["macro_f1"]),
            f"Mean F1 of all classes that occur, as label or as prediction; {smallest}.",
        ),
        ("Log loss", f"{max(0, overall['log_loss']):.3f}", loss),
        (
            "Brier score",
            f"{overall['brier_score']:.3f}",
            "Mean squared error of the probabilities, from 0 (best) to 2.",
        ),
        ("Expected calibration error", error, "Mean difference between probability and accuracy, in ten bins."),
    )
    return Listing(f"Rows measured: {overall['rows']:,}.", ("Measure", "Value", "Meaning"), rows)


def _promises(promised: Sequence[Promise]) -> list[Listing]:
    return [promises.list_promises(promised)] if promised else []


def _coverage(measured: Measures) -> Listing:
    rows = tuple(
        (percent(point.coverage), f"{math.floor(1000 * point.probability) / 1000:.3f}", percent(point.accuracy))
        for point in measured.at_coverages(COVERAGES).itertuples()
    )
    headers = ("Rows answered", "Probability at least", "Accuracy")
    caption = "Accuracy if predict --abstain= keeps only predictions of at least this probability."
    return Listing(caption, headers, rows)


def _mistakes(measured: Measures, examples: Sequence[Example], task: Task, labels: Sequence[str]) -> Listing:
    """Return the mistakes with the highest probabilities."""
    mistakes = _mistakes_by_probability(measured)
    ids = _id_columns(examples)
    rows = []
    for index in mistakes[:_MAX_MISTAKES]:
        true = labels[measured.y_Q[index]]
        predicted = labels[measured.predicted_Q[index]]
        rows.append((*_cells(examples[index], ids, task), true, predicted, f"{measured.confidence_Q[index]:.2f}"))
    first = f"The first {len(rows)} of " if len(mistakes) > len(rows) else ""
    caption = f"{first}{len(mistakes):,} mistakes; mistakes.csv has all, with their probabilities."
    return Listing(caption, (*ids, "Line", "Text", "Label", "Prediction", "Probability"), tuple(rows))
