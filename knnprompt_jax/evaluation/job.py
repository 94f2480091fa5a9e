"""Measure a saved classifier on labelled rows: measures as JSON, as CSV and on a page."""

import json
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import logging

from knnprompt_jax import files, parallel, states
from knnprompt_jax.classifier import estimator, saving
from knnprompt_jax.classifier.base import Classifier
from knnprompt_jax.evaluation import sections
from knnprompt_jax.prediction import rows as rows_lib
from knnprompt_jax.prompts import layout
from knnprompt_jax.report import page
from knnprompt_jax.report.measures import Measures
from knnprompt_jax.settings import commands
from knnprompt_jax.tasks import defects, sources
from knnprompt_jax.tasks.task import Example


def run(settings: commands.EvaluationSettings) -> str:
    """Classify the rows, write the measures, and return what the binary prints.

    Raises:
      UserError: no such classifier, file or model; a row without its texts, or with a label that the classifier does not know.
    """
    saved, output = saving.read(pathlib.Path(settings.store)), page.folder(settings.output, needs_page=False)
    if no_page := page.lacking():
        logging.warning("no page will be written: %s", no_page)
    task = saved.content.task
    source = settings.source(saved.content.source)
    examples = sources.load_rows(task, "evaluation", path=settings.input, on_bad=settings.on_bad, **source)
    if found := defects.matches(examples, (*saved.content.demonstrations, *saved.content.anchors)):
        repeat = "repeats" if len(found) == 1 else "repeat"
        message = "%d of %d rows %s a text that the classifier was fitted to, so scores are too high; first: %s"
        logging.warning(message, len(found), len(examples), repeat, found[0][0].source)
    model = saved.load_model(parallel.make_mesh(0, settings.mesh_model))
    classifier = estimator.restore(saved, model)
    measured = measure(classifier, examples)
    about = {"store": settings.store, "input": settings.input, "model": model.name}
    content = json.dumps({**about, **sections.to_dict(measured)}, indent=1, ensure_ascii=False) + "\n"
    files.write(output / "measures.json", content)
    files.write(output / "measures.csv", sections.to_csv(measured))
    text = (
        f"{len(examples):,} rows of {settings.input}, classified by {model.name} with {len(classifier.anchors_):,} anchors "
        f"and {len(classifier.demonstrations_)} demonstrations."
    )
    described, title = sections.describe(measured), f"{saved.folder.name} on {pathlib.Path(settings.input).name}"
    if no_page:
        (output / "index.html").unlink(missing_ok=True)  # An earlier page has other measures.
        return described
    return f"{described}\n\npage: {page.write(output, title, text, sections.build(measured, examples, task))}"


def measure(classifier: Classifier, examples: Sequence[Example]) -> Measures:
    """Measure a fitted classifier on labelled examples; classes are in the order of `classes_`."""
    predicted, probabilities, num_truncated = [], [], 0
    for batch in rows_lib.ahead(rows_lib.batches(examples, classifier)):
        read = states.read(classifier.model, batch.prompts, title="rows", repeated=True, layers=classifier.layers)
        predictions = classifier.answer_states(read)
        predicted += predictions.labels.tolist()
        num_truncated += batch.prompts.num_truncated
        probabilities.append(np.asarray(predictions.probabilities, np.float64))
    layout.warn_truncated(num_truncated, len(examples), classifier.model.context)
    labels = tuple(map(str, classifier.classes_.tolist()))
    p_QC, place = np.concatenate(probabilities), {label: index for index, label in enumerate(labels)}
    return Measures(
        labels=labels,
        y_Q=np.array([place[example.label] for example in examples]),
        predicted_Q=np.array([place[str(label)] for label in predicted]),
        probabilities_QC=p_QC / p_QC.sum(-1, keepdims=True),  # Float32 shares do not sum to 1 exactly.
    )
