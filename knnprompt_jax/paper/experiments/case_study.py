"""Case studies (figures): a map of anchors and test rows, and rows that kNN Prompting predicts correctly and ICL does not.

A .map file beside each kNN record holds its map as JSON.
"""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

import numpy as np
from sklearn import decomposition

from knnprompt_jax import errors, files, lm
from knnprompt_jax.methods import knn, method
from knnprompt_jax.paper import experiment
from knnprompt_jax.report import maps, names, page, results
from knnprompt_jax.report.results import Record
from knnprompt_jax.settings import classifiers
from knnprompt_jax.store import representations

NEIGHBOURS = 5
_COMPONENTS = 50
_CASES = 5


@dataclasses.dataclass(frozen=True)
class _Experiment(experiment.Experiment):
    def before_writing(self, folder: pathlib.Path, record: Record, context: method.Context) -> None:
        """Write the map of a record of kNN Prompting with anchors."""
        if record.method == "knn" and record.demo_shots < record.shots:
            write(path_of(folder, record), _make(record, context))

    def section(self, records: Sequence[Record], folder: pathlib.Path) -> page.Section:
        """Return the map of the first seed that has one, for each model and task; raise UserError if a file is not a map."""
        by_place, drawn = results.groups(results.frame(records), ["model", "task"]), []
        for place in names.ordered_keys(("model", "task"), by_place):
            paths = [path_of(folder, record) for record in by_place[place].sort_values("seed").record]
            drawn += [read(path) for path in paths if path.is_file()][:1]
        return dataclasses.replace(super().section(records, folder), maps=tuple(drawn))


def path_of(folder: pathlib.Path, record: Record) -> pathlib.Path:
    """Return the path of a record's map."""
    return folder / pathlib.PurePath(record.file_name).with_suffix(".map")


def write(path: pathlib.Path, drawn: maps.Map) -> None:
    """Write a map as JSON."""
    files.write(path, json.dumps(dataclasses.asdict(drawn) | {"positions_N2": drawn.positions_N2.tolist()}))


def read(path: pathlib.Path) -> maps.Map:
    """Return the map in a file; raise UserError if there is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        points = tuple(maps.Point(**point) for point in values["points"])
        return maps.Map(**values | {"points": points, "positions_N2": np.array(values["positions_N2"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise errors.UserError(f"{path}: not a case study: {' '.join(str(error).split())}") from None


def _make(record: Record, context: method.Context) -> maps.Map:
    """Return the map of a record's anchors, then its test rows.

    The places are the t-SNE of the square roots of the next-token distributions, whose Euclidean distance is the Hellinger
    distance, in their first principal components.
    """
    task, rows = context.problem.task, [*context.problem.split.anchors, *context.problem.evaluation]
    anchors, queries = (context.states[rows] for rows in (method.anchors, method.queries))
    both, count = lm.concatenate([anchors, queries]), len(anchors)
    options = classifiers.KNNOptions(**record.settings["options"])
    nearest = knn.neighbours(context, options, min(NEIGHBOURS, count))
    words = np.array(task.label_words)
    labels_N = words[[task.class_index(row.label) for row in rows]]
    knn_Q = words[[task.class_index(label) for label in record.predicted]]
    icl_N = words[context.label_probabilities(both).argmax(-1)]
    near = [
        tuple(zip(indices, distances, strict=True))
        for indices, distances in zip(nearest.indices_Qk.tolist(), nearest.distances_Qk.tolist(), strict=True)
    ]
    columns = [task.retrieval_text(row) for row in rows], labels_N.tolist(), [""] * count + knn_Q.tolist()
    points = tuple(map(maps.Point, *columns, icl_N.tolist(), [()] * count + near))
    roots_NV = np.exp(np.asarray(representations.log_probabilities(context.head, both), np.float64) / 2)
    components = decomposition.PCA(min(_COMPONENTS, *roots_NV.shape), svd_solver="full")
    right_Q, icl_right_N = knn_Q == labels_N[count:], icl_N == labels_N
    shares = [f"{100 * part.mean():.1f} %" for part in (right_Q, icl_right_N[count:], icl_right_N[:count])]
    # Test rows that kNN Prompting predicts correctly and in-context learning does not, drawn at random.
    cases = np.random.default_rng(0).permutation(np.flatnonzero(right_Q & ~icl_right_N[count:]))[:_CASES]
    title = names.task(record.task)
    return maps.Map(
        title=title,
        caption=f"{title}, m = {record.shots}, seed {record.seed}: t-SNE of {count} anchors and {len(knn_Q)} test rows by the Hellinger "
        "distance of their distributions; shapes and colours are true labels. kNN Prompting is right in "
        f"{shares[0]} and in-context learning in {shares[1]} of the test rows; of the anchors, ICL is right in {shares[2]}.",
        labels=tuple(words.tolist()),
        points=points,
        positions_N2=maps.layout(components.fit_transform(roots_NV)),
        other="In-context learning",
        cases=tuple(sorted((cases + count).tolist())),
    )


EXPERIMENTS = (
    _Experiment(
        "case_study",
        "Case study",
        "Anchors and test rows at the places that the model's states give them, and test rows that kNN Prompting predicts correctly "
        "and in-context learning does not.",
        lambda data: ([], []),
    ),
)
