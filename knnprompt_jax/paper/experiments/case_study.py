"""Case studies (figures): a map of anchors and test rows, and rows that kNN Prompting predicts correctly and ICL does not.

An .npz file beside each kNN record holds its texts, labels, predictions and neighbours, and the points of the map.
"""

import dataclasses
import pathlib
import zipfile
from collections.abc import Sequence

import numpy as np
from sklearn import decomposition

from knnprompt_jax import errors, files, lm
from knnprompt_jax.methods import in_context, knn, method
from knnprompt_jax.paper import experiment
from knnprompt_jax.report import maps, names, page, results
from knnprompt_jax.report.results import Record
from knnprompt_jax.settings import classifiers
from knnprompt_jax.store import representations

NEIGHBOURS = 5
COMPONENTS = 50
_ARRAYS = {"texts", "classes", "labels", "predictions", "icl", "neighbours_Qk", "distances_Qk", "points"}
_CASES = 5


@dataclasses.dataclass(frozen=True)
class _Experiment(experiment.Experiment):
    def before_writing(self, folder: pathlib.Path, record: Record, context: method.Context) -> None:
        """Write the case study of a record of kNN Prompting with anchors."""
        if record.method == "knn" and record.demo_shots < record.shots:
            path = path_of(folder, record)
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.new_file(path) as unfinished, unfinished.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **_make(record, context))

    def section(self, records: Sequence[Record], folder: pathlib.Path) -> page.Section:
        """Return a map for each model and task; raise UserError if a file beside a record is not a case study."""
        by_place, drawn = results.groups(results.frame(records), ["model", "task"]), []
        for place in names.ordered_places(("model", "task"), by_place):
            seeds = by_place[place].sort_values("seed").record
            # The first seed that has a case study.
            if record := next((record for record in seeds if path_of(folder, record).is_file()), None):
                drawn.append(_map(record, read(path_of(folder, record))))
        return dataclasses.replace(super().section(records, folder), maps=tuple(drawn))


def path_of(folder: pathlib.Path, record: Record) -> pathlib.Path:
    """Return the path of a record's case study."""
    return folder / pathlib.PurePath(record.file_name).with_suffix(".npz")


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the arrays of the case study in a file (see `_make`); raise UserError if there is none."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if set(arrays) == _ARRAYS:
                return dict(arrays)
        reason = "other arrays"
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
    raise errors.UserError(f"{path}: not a case study: {reason}")


def _make(record: Record, context: method.Context) -> dict[str, np.ndarray]:
    """Return the arrays of a case study of N anchors and Q test rows, anchors first.

    classes: [C] label words, or labels if words are not distinct.
    texts, labels, icl: [N + Q] texts, their classes and in-context learning's predictions.
    predictions: [Q] kNN Prompting's for the test rows.
    neighbours_Qk: the nearest anchors, nearest first; `distances_Qk` are their divergences in nats.
    points: [N + Q, ≤ 50] principal components of the square roots of the next-token distributions. Their Euclidean distance
      is the Hellinger distance of the distributions, except for the components left out.
    """
    task, rows = context.problem.task, [*context.problem.split.anchors, *context.problem.evaluation]
    anchors, queries = (context.states[each] for each in (method.anchors, method.queries))
    both = lm.concatenate([anchors, queries])
    classifier = knn.fitted(context, classifiers.KNNOptions(**record.settings["options"]))
    nearest = classifier.search(queries, min(NEIGHBOURS, len(anchors)))
    words = np.array(task.label_words if len(set(task.label_words)) == task.num_classes else task.labels)
    p_NC = in_context.predict_proba(context.head, both, context.label_ids)
    roots_NV = np.exp(np.asarray(representations.log_probabilities(context.head, both), np.float64) / 2)
    components = decomposition.PCA(min(COMPONENTS, *roots_NV.shape), svd_solver="full")
    return {
        "texts": np.array([task.retrieval_text(row) for row in rows]),
        "classes": words,
        "labels": words[[task.class_index(row.label) for row in rows]],
        "predictions": words[[task.class_index(label) for label in record.predicted]],
        "icl": words[p_NC.argmax(-1)],
        "neighbours_Qk": np.asarray(nearest.indices_Qk),
        "distances_Qk": np.asarray(nearest.distances_Qk),
        "points": components.fit_transform(roots_NV).astype(np.float32),
    }


def _map(record: Record, study: dict[str, np.ndarray]) -> maps.Map:
    labels, icl, knn = (study[name].tolist() for name in ("labels", "icl", "predictions"))
    tests, anchors = len(knn), len(labels) - len(knn)
    near = [
        tuple(zip(*pair, strict=True))
        for pair in zip(study["neighbours_Qk"].tolist(), study["distances_Qk"].tolist(), strict=True)
    ]
    columns = study["texts"].tolist(), labels, [""] * anchors + knn, icl, [()] * anchors + near
    right, icl_right = study["predictions"] == study["labels"][anchors:], study["icl"] == study["labels"]
    shares = (right.mean(), icl_right[anchors:].mean(), icl_right[:anchors].mean())
    task = names.task(record.task)
    caption = (
        f"{task}, m = {record.shots}, seed {record.seed}: t-SNE of {anchors} anchors and {tests} test rows by the Hellinger distance "
        "of their distributions; shapes and colours are true labels. kNN Prompting is right in {} and in-context learning in {} of the "
        "test rows; of the anchors, in-context learning is right in {}."
    )
    # Test rows that kNN Prompting predicts correctly and in-context learning does not, drawn at random.
    cases = np.random.default_rng(0).permutation(np.flatnonzero(right & ~icl_right[anchors:]))[:_CASES]
    return maps.Map(
        title=task,
        caption=caption.format(*(f"{100 * share:.1f} %" for share in shares)),
        labels=tuple(study["classes"].tolist()),
        points=tuple(map(maps.Point, *columns)),
        places_N2=maps.places(study["points"]),
        other="In-context learning",
        cases=tuple(sorted((cases + anchors).tolist())),
    )


EXPERIMENTS = (
    _Experiment(
        "case_study",
        "Case study",
        "Anchors and test rows at the places that the model's states give them, and test rows that kNN Prompting predicts correctly "
        "and in-context learning does not.",
        lambda data: ([], []),
        matches=None,
    ),
)
