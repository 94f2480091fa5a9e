"""Measure a saved classifier on labelled rows: measures as text, as JSON and on a page."""

import dataclasses
import json
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from knnprompt_jax.classifier import arguments, classifier_file
from knnprompt_jax.classifier.confidence import novelty
from knnprompt_jax.classifier.experts import near_copies
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.commands import unlabelled
from knnprompt_jax.common import errors, files, text_tables
from knnprompt_jax.inference import states
from knnprompt_jax.report import drawing, measures, page
from knnprompt_jax.report.measures import Measures, percent
from knnprompt_jax.report.page import Listing, Section
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.tasks.task import Example, Task

_MAX_MISTAKES = 20  # Mistakes that are listed on the page.


def run(settings: commands.EvaluationSettings) -> str:
    """Classify the rows, write the measures, and return the text to print; an interrupted run resumes from the cache.

    Raises:
        UserError: no such classifier, file or model; a row without its texts, or with a label that the classifier does
            not know.
    """
    output = pathlib.Path(settings.output)
    page.check(output, "evaluate")
    saved = classifier_file.read(pathlib.Path(settings.classifier)).with_prior(settings.prior)
    examples = settings.table(settings.input, saved.content.label_column).labelled(saved.content.task)
    _warn_of_near_copies(saved.content.rows, examples)
    others = []
    if settings.out_of_scope:
        novelty.check_threshold(settings.reject_novel, saved.content.num_novelty_rows)
        others = unlabelled.read_all(settings.table(settings.out_of_scope), saved.content.task)
    fitted = saved.restore(saved.load_model(inputs.choose_saved_mesh(settings.mesh, saved.content.model)))
    cache = states.open_disk_cache(settings.cache_gb)
    measured = measure(fitted, examples, cache)
    certainty = measured.certainty(_find_thresholds(fitted))
    scope = measure_scope(fitted, measured, others, settings.reject_novel, cache) if others else None
    mistakes = list_mistakes(measured, examples, fitted.task)
    about = {"classifier": settings.classifier, "input": settings.input, "model": fitted.model.name}
    content = {**about, **measured.to_dict(), "certainty": certainty, "out_of_scope": scope}
    files.write(output / "measures.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    files.write(output / "mistakes.csv", text_tables.to_csv([mistakes.headers, *mistakes.rows]))
    sections = _make_sections(measured, mistakes, certainty, scope)
    title = f"{saved.path.name} on {pathlib.Path(settings.input).name}"
    text = f"{len(examples):,} rows of {settings.input}, classified by {fitted.model.name}."
    written = page.write(output, "evaluate", title, text, sections)
    listings = [listing for section in sections for listing in section.listings if section.name != "mistakes"]
    printed = [f"{listing.caption}\n\n{listing.text}" for listing in listings if listing.rows]
    return "\n\n".join([*printed, *advise_on_prior(measured, fitted), f"page: {written}"])


def _warn_of_near_copies(rows: Sequence[Example], examples: Sequence[Example]) -> None:
    """Log how many examples are near copies of rows."""
    text_N = near_copies.number_texts([*rows, *examples])
    if len(found := np.flatnonzero(np.isin(text_N[len(rows) :], text_N[: len(rows)]))):
        message = "%d of %d rows are near copies of rows of the classifier: scores may be too high; first: %s"
        logging.warning(message, len(found), len(examples), examples[found[0]].place)


def _find_thresholds(fitted: Fitted) -> dict[float, float]:
    """Return the smallest probability of a label for each error rate; log why there is none."""
    try:
        return measures.find_thresholds(*fitted.held_out())
    except errors.UserError as error:
        logging.warning("%s", error)
        return {}


def _make_sections(
    measured: Measures, mistakes: Listing, certainty: Sequence[Mapping[str, Any]], scope: Mapping[str, Any] | None
) -> list[Section]:
    """Return the sections of the page, which lists the first mistakes."""
    first = dataclasses.replace(mistakes, rows=mistakes.rows[:_MAX_MISTAKES])
    checking = "The most probable predictions come first: check these labels, or add train rows like these texts."
    by_class = (measures.list_classes(measured), measures.list_confusions(measured))
    sections = [
        Section("summary", "Summary", "All rows together.", listings=(measures.list_overall(measured),)),
        Section("mistakes", "Mistakes", checking, listings=(first,)),
        Section("classes", "Classes", "The rows by their label and their prediction.", listings=by_class),
    ]
    with drawing.style():
        sections.append(measures.calibration(measured, (measures.list_certainty(certainty),)))
    if scope:
        about = "Can novelty tell these rows from texts that belong to none of the classes?"
        sections.append(Section("scope", "Out of scope", about, listings=(measures.list_scope(scope),)))
    return sections


def measure(fitted: Fitted, examples: Sequence[Example], cache: states.Cache | None = None) -> Measures:
    """Measure a classifier on labelled examples; cache their states. Classes are in the order of `Fitted.classes`."""
    probabilities = []
    novelty_scores = []
    for _, readings in unlabelled.read_batches(fitted, examples, cache, examples[-1].row + 1):
        predictions = fitted.answer(readings, with_neighbours=False)
        probabilities.append(np.asarray(predictions.probabilities, np.float64))
        novelty_scores.append(fitted.novelty_scores(readings))
    labels = tuple(map(str, fitted.classes.tolist()))
    probabilities_QC = np.concatenate(probabilities)
    return Measures(
        labels=labels,
        y_Q=np.array([labels.index(example.label) for example in examples]),
        predicted_Q=probabilities_QC.argmax(-1),
        probabilities_QC=probabilities_QC,
        novelty_Q=np.concatenate(novelty_scores),
    )


def measure_scope(
    fitted: Fitted, measured: Measures, others: Sequence[Example], threshold: float, cache: states.Cache | None = None
) -> dict[str, Any]:
    """Measure how well novelty tells the measured rows from texts out of scope; cache their states."""
    batches = unlabelled.read_batches(fitted, others, cache, others[-1].row + 1)
    scores = [fitted.novelty_scores(readings) for _, readings in batches]
    return measured.scope(np.concatenate(scores), fitted.scope, threshold)


def advise_on_prior(measured: Measures, fitted: Fitted) -> list[str]:
    """Return a remark if the shares of classes among the measured rows would raise the accuracy beyond its interval.

    The accuracy with the measured shares needs no more predictions: probabilities are multiplied by the shares. If a
    class has no rows, there is no remark: a share of 0 would rule it out.
    """
    if fitted.pool is None:
        return []
    order_C = arguments.sorted_order(fitted.content.labels_C)
    counts_C = np.bincount(fitted.content.y_N, minlength=len(order_C))
    assumed_C = (counts_C / counts_C.sum() if fitted.content.prior_C is None else fitted.content.prior_C)[order_C]
    shares_C = np.bincount(measured.y_Q, minlength=len(order_C)) / len(measured.y_Q)
    ratio_C = np.divide(shares_C, assumed_C, out=np.zeros(len(order_C)), where=assumed_C > 0)
    accuracy = np.mean((measured.probabilities_QC * ratio_C).argmax(-1) == measured.y_Q)
    if not shares_C.all() or accuracy <= measured.overall["accuracy_interval"]["high"]:
        return []
    prior = ",".join(f"{label}={share:.3g}" for label, share in zip(measured.labels, shares_C, strict=True))
    return [
        "Classes are not as common in these rows as the classifier assumes. If new rows are like these, set their shares: "
        f"--class_prior={shlex.quote(prior)} would give accuracy {percent(accuracy)} here instead of "
        f"{percent(measured.overall['accuracy'])}."
    ]


def list_mistakes(measured: Measures, examples: Sequence[Example], task: Task) -> Listing:
    """Return a row for each mistake, the most probable predictions first."""
    order_Q = np.argsort(-measured.confidence_Q, kind="stable")
    ids = tuple(examples[0].ids)
    rows = []
    for index in order_Q[~measured.is_right_Q[order_Q]]:
        example = examples[index]
        true = measured.y_Q[index]
        predicted = measured.predicted_Q[index]
        line = example.place.rpartition(":")[2].strip()
        texts = [*(str(example.ids.get(name, "")) for name in ids), line, task.retrieval_text(example)]
        p_C = measured.probabilities_QC[index]
        probabilities = (f"{p_C[predicted]:.3f}", f"{p_C[true]:.3f}")
        rows.append((*texts, measured.labels[true], measured.labels[predicted], *probabilities))
    caption = f"The first {min(_MAX_MISTAKES, len(rows))} of {len(rows):,} mistakes; mistakes.csv has all."
    headers = (*ids, "line", "text", "label", "prediction", "probability", "label_probability")
    return Listing(caption, headers, tuple(rows))
