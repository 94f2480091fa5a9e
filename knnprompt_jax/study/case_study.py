"""Case studies (figures): a map of anchors and test rows, and test rows that only kNN Prompting predicts correctly.

A .map file beside each kNN record holds its map as JSON.
"""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from sklearn import decomposition

from knnprompt_jax.common import errors, files, parallel
from knnprompt_jax.datastore import distances
from knnprompt_jax.datastore.search import KNNOptions
from knnprompt_jax.methods import knn, method
from knnprompt_jax.report import drawing, maps, names, page, results, tables
from knnprompt_jax.report.results import Record
from knnprompt_jax.study.paper_experiment import Data, Experiment

NEIGHBOURS = 5
_COMPONENTS = 50
_CASES = 5


class _CaseStudy(Experiment):
    """An experiment whose section shows maps."""

    def before_writing(self, folder: pathlib.Path, record: Record, method_inputs: method.Inputs) -> None:
        """Write the map of a record of kNN Prompting with anchors."""
        if record.method == "knn" and record.demo_shots < record.shots:
            made = _make(record, method_inputs)
            parallel.call_in_main(lambda: write(path_of(folder, record), made))

    def tables_and_figures(self, data: Data) -> tuple[list[tables.Table], list[drawing.Figure]]:
        """Return no tables and figures."""
        del data
        return [], []

    def section(self, records: Sequence[Record], folder: pathlib.Path, with_figures: bool = True) -> page.Section:
        """Add the map of each model and task, of the first seed that has one; raise UserError on an invalid file."""
        axes = ("model", "task")
        groups = results.groups(results.frame(records), axes)
        drawn = []
        for key in names.ordered_keys(axes, groups):
            paths = [path_of(folder, record) for record in groups[key].sort_values("seed").record]
            drawn += [read(path) for path in paths if path.is_file()][:1]
        return dataclasses.replace(super().section(records, folder, with_figures), maps=tuple(drawn))


def path_of(folder: pathlib.Path, record: Record) -> pathlib.Path:
    """Return the path of a record's map."""
    return folder / pathlib.PurePath(record.file_name).with_suffix(".map")


def write(path: pathlib.Path, drawn: maps.Map) -> None:
    """Write a map as JSON."""
    files.write(path, json.dumps(dataclasses.asdict(drawn) | {"positions_N2": drawn.positions_N2.tolist()}))


def read(path: pathlib.Path) -> maps.Map:
    """Return the map in a file; raise UserError if it has none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        points = tuple(maps.Point(**point) for point in values["points"])
        return maps.Map(**values | {"points": points, "positions_N2": np.array(values["positions_N2"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise errors.UserError(f"{path}: not a case study: {' '.join(str(error).split())}") from None


def _make(record: Record, inputs: method.Inputs) -> maps.Map:
    """Return the map of a record's anchors, then its test rows."""
    task = inputs.problem.task
    anchors = inputs.states[method.ANCHORS]
    queries = inputs.states[method.QUERIES]
    both = jax.tree.map(lambda *parts: jnp.concatenate(parts), anchors, queries)
    num_anchors = len(anchors)
    words = np.array(task.label_words)
    rows = [*inputs.problem.split.anchors, *inputs.problem.evaluation]
    labels_N = words[[task.class_index(row.label) for row in rows]]
    knn_Q = words[[task.class_index(label) for label in record.predicted]]
    icl_N = words[inputs.label_probabilities(both).argmax(-1)]
    is_case_Q = (knn_Q == labels_N[num_anchors:]) & (icl_N != labels_N)[num_anchors:]
    cases = np.random.default_rng(0).permutation(np.flatnonzero(is_case_Q))[:_CASES]
    options = KNNOptions(**record.settings["options"])
    neighbours = knn.find_neighbours(inputs, options, min(NEIGHBOURS, num_anchors))
    points = []
    for index, row in enumerate(rows):
        point = maps.Point(task.retrieval_text(row), str(labels_N[index]), other=str(icl_N[index]))
        query = index - num_anchors
        if query >= 0:
            found = (neighbours.indices_Qk[query].tolist(), neighbours.distances_Qk[query].tolist())
            nearest = tuple(zip(*found, strict=True))
            point = dataclasses.replace(point, prediction=str(knn_Q[query]), neighbours=nearest)
        points.append(point)
    # The Euclidean distance of square roots of distributions is their Hellinger distance.
    roots_NV = np.exp(np.asarray(distances.log_probabilities(inputs.model.head, both), np.float64) / 2)
    components = decomposition.PCA(min(_COMPONENTS, *roots_NV.shape), svd_solver="full")
    return maps.Map(
        title=names.task(record.task),
        caption=f"{names.task(record.task)}, m = {record.shots}, seed {record.seed}: t-SNE of {num_anchors} examples and "
        f"{len(knn_Q)} test rows by the Hellinger distance of their distributions; shapes and colours are true labels.",
        labels=tuple(words.tolist()),
        points=tuple(points),
        positions_N2=maps.layout(components.fit_transform(roots_NV)),
        other="In-context learning",
        cases=tuple(sorted((cases + num_anchors).tolist())),
    )


EXPERIMENT = _CaseStudy(
    "case_study",
    "Case study",
    "Examples and test rows, placed by the model's states, and test rows that kNN Prompting predicts correctly and "
    "in-context learning does not.",
)
