"""A saved classifier and labelled rows → measures, as JSON, as CSV and on a page."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from knnprompt_jax import options, parallel, progress
from knnprompt_jax.classifier import saving
from knnprompt_jax.classifier.estimator import KNNPrompting
from knnprompt_jax.evaluation import measures, sections, writing
from knnprompt_jax.prediction import batches, rows
from knnprompt_jax.report import page
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.tasks import sources
from knnprompt_jax.tasks.task import Example


@dataclasses.dataclass(frozen=True)
class EvaluationSettings(settings_lib.LabelledFileOptions, settings_lib.SavedOptions):
    """Which classifier is measured on which rows."""

    input: str = options.option("", "CSV, TSV, JSONL or Parquet file of rows with their labels.", needed=True)
    output: str = options.option("evaluation", "Folder of index.html, measures.json and measures.csv.", needed=True)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The measures of a classifier, the rows in their order, and where the page is."""

    measures: measures.Measures
    examples: Sequence[Example]
    page: pathlib.Path


def run(settings: EvaluationSettings) -> Evaluation:
    """Classifies the rows and writes the measures.

    Raises:
        UserError: no such classifier, file or model; a row without its texts, or with a label that the classifier does not know.
    """
    folder = pathlib.Path(settings.store).expanduser()
    task, output = saving.read(folder).content.task, page.folder(settings.output)
    examples = sources.load_rows(
        task, "evaluation", path=settings.input, encoding=settings.encoding, label_column=settings.label_column
    )
    classifier = KNNPrompting.load(folder, mesh=parallel.make_mesh(0, settings.mesh_model))
    measured = measure(classifier, examples)
    writing.write(measured, output, {"store": settings.store, "input": settings.input, "model": classifier.lm.name})
    made = sections.build(measured, examples, task)
    text = (
        f"{len(examples):,} rows of {settings.input}, classified by {classifier.lm.name} with {len(classifier.anchors_):,} anchors "
        f"after {len(classifier.demonstrations_)} demonstrations."
    )
    title = f"{folder.name} on {pathlib.Path(settings.input).name}"
    return Evaluation(measured, examples, page.write(page.Page(title, text, made), output))


def measure(classifier: KNNPrompting, examples: Sequence[Example]) -> measures.Measures:
    """The measures of a fitted classifier on examples with labels; classes are in the order of its `classes_`."""
    laid, predicted, probabilities = batches.BatchLayout(classifier), [], []
    with progress.bar(len(examples), unit="row") as report:
        for batch in batches.ahead(batches.read(_rows(examples), laid)):
            said = classifier.answer_states(batches.states(batch, laid, report))
            predicted += said.labels.tolist()
            probabilities.append(np.asarray(said.probabilities, np.float64))
    labels = tuple(map(str, classifier.classes_.tolist()))
    shares_QC, place = np.concatenate(probabilities), {label: index for index, label in enumerate(labels)}
    return measures.Measures(
        labels=labels,
        y_Q=np.array([place[example.label] for example in examples]),
        predicted_Q=np.array([place[str(label)] for label in predicted]),
        probabilities_QC=shares_QC / shares_QC.sum(-1, keepdims=True),  # To the last digit of float64.
    )


def summarize(evaluation: Evaluation) -> str:
    """What the binary prints."""
    return f"{writing.table(evaluation.measures)}\n\npage: {evaluation.page}"


def _rows(examples: Sequence[Example]) -> Iterator[rows.MarkedRow]:
    for count, example in enumerate(examples, 1):
        yield rows.MarkedRow(example, rows.Mark(count))
