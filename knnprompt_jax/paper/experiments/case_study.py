"""Case studies (figures): a map of anchors and test rows, and rows that kNN Prompting predicts correctly and ICL does not.

An .npz file beside each kNN record holds its texts, labels, predictions and neighbours, and the points of the map.
"""

import dataclasses
import pathlib
import zipfile
from collections.abc import Sequence

import numpy as np

from knnprompt_jax import errors, files, lm
from knnprompt_jax.classifier import options as knn_options
from knnprompt_jax.methods import in_context, knn, method
from knnprompt_jax.paper import experiment
from knnprompt_jax.report import maps, names, page, results
from knnprompt_jax.report.results import Record
from knnprompt_jax.store import representations

NEIGHBOURS = 5
COMPONENTS = 50
_CASES = 5


@dataclasses.dataclass(frozen=True)
class CaseStudy:
    """N anchors and Q test rows; labels are label strings.

    Attributes:
      label_words: the words of `labels`.
      anchors_icl: in-context learning's predictions for the anchors.
      knn: kNN Prompting's predictions for the test rows; `icl` are in-context learning's.
      neighbours_Qk: the nearest anchors, nearest first; `distances_Qk` are their divergences in nats.
      points: [N + Q, ≤ 50] principal components of the square roots of the next-token distributions, anchors first. Their
        Euclidean distance is the Hellinger distance of the distributions, except for the components left out.
    """

    labels: np.ndarray
    label_words: np.ndarray
    anchor_texts: np.ndarray
    anchor_labels: np.ndarray
    anchors_icl: np.ndarray
    texts: np.ndarray
    true: np.ndarray
    knn: np.ndarray
    icl: np.ndarray
    neighbours_Qk: np.ndarray
    distances_Qk: np.ndarray
    points: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Experiment(experiment.Experiment):
    def before_writing(self, folder: pathlib.Path, record: Record, context: method.Context) -> None:
        """Write the case study of a record of kNN Prompting with anchors."""
        if record.method == "knn" and record.demo_shots < record.shots:
            path = path_of(folder, record)
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.new_file(path) as unfinished, unfinished.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **vars(_make(record, context)))

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


def read(path: pathlib.Path) -> CaseStudy:
    """Return the case study in a file; raise UserError if there is none."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return CaseStudy(**arrays)
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise errors.UserError(f"{path}: not a case study: {' '.join(str(error).split())}") from None


def _make(record: Record, context: method.Context) -> CaseStudy:
    problem, task = context.problem, context.problem.task
    anchors, queries = (context.states[rows] for rows in (method.anchors, method.queries))
    anchors_icl, icl = (
        in_context.predict_proba(context.head, states, context.label_ids).argmax(-1) for states in (anchors, queries)
    )
    classifier = knn.fitted(context, knn_options.KNNOptions(**record.settings["options"]))
    nearest = classifier.search(queries, min(NEIGHBOURS, len(anchors)))
    labels = np.array(task.labels)
    return CaseStudy(
        labels=labels,
        label_words=np.array(task.label_words),
        anchor_texts=np.array([task.retrieval_text(row) for row in problem.split.anchors]),
        anchor_labels=np.array([row.label for row in problem.split.anchors]),
        anchors_icl=labels[anchors_icl],
        texts=np.array([task.retrieval_text(row) for row in problem.evaluation]),
        true=np.array(record.true),
        knn=np.array(record.predicted),
        icl=labels[icl],
        neighbours_Qk=np.asarray(nearest.indices_Qk),
        distances_Qk=np.asarray(nearest.distances_Qk),
        points=_points(context, lm.concatenate([anchors, queries])),
    )


def _points(context: method.Context, states: lm.States) -> np.ndarray:
    """Return principal components, computed from the inner products of all pairs: there are fewer prompts than tokens."""
    roots_NV = np.exp(np.asarray(representations.log_probabilities(context.head, states), np.float64) / 2)
    roots_NV -= roots_NV.mean(0)
    variances, axes = np.linalg.eigh(roots_NV @ roots_NV.T)
    kept = slice(-1, -1 - min(COMPONENTS, len(axes)), -1)
    return (axes[:, kept] * np.sqrt(np.maximum(variances[kept], 0))).astype(np.float32)


def _map(record: Record, study: CaseStudy) -> maps.Map:
    # Labels stand in for label words that are not distinct.
    shown = study.label_words if len(set(study.label_words)) == len(study.labels) else study.labels
    words = dict(zip(study.labels.tolist(), map(str, shown), strict=True))
    points = [
        maps.Point(str(text), words[label], other=words[icl])
        for text, label, icl in zip(study.anchor_texts, study.anchor_labels, study.anchors_icl, strict=True)
    ]
    for row, text in enumerate(study.texts):
        near = zip(study.neighbours_Qk[row].tolist(), study.distances_Qk[row].tolist(), strict=True)
        true, knn, icl = (words[label[row]] for label in (study.true, study.knn, study.icl))
        points.append(maps.Point(str(text), true, knn, icl, tuple(near)))
    anchors, tests, task = len(study.anchor_texts), len(study.texts), names.task(record.task)
    accuracies = (
        f"{100 * float(np.mean(predicted == true)):.1f} %"
        for predicted, true in (
            (study.knn, study.true),
            (study.icl, study.true),
            (study.anchors_icl, study.anchor_labels),
        )
    )
    caption = (
        f"{task}, m = {record.shots}, seed {record.seed}: t-SNE of {anchors} anchors and {tests} test rows by the Hellinger distance "
        "of their distributions; shapes and colours are true labels. kNN Prompting is right in {} and in-context learning in {} of the "
        "test rows; of the anchors, in-context learning is right in {}."
    )
    # Test rows that kNN Prompting predicts correctly and in-context learning does not, drawn at random.
    improved = np.flatnonzero((study.knn == study.true) & (study.icl != study.true))
    cases = sorted(np.random.default_rng(0).permutation(improved)[:_CASES])
    return maps.Map(
        name=f"{names.plain(record.task)}-{names.plain(record.model)}",
        title=task,
        caption=caption.format(*accuracies),
        labels=tuple(words[label] for label in study.labels),
        points=tuple(points),
        places_N2=maps.places(study.points),
        other="In-context learning",
        cases=tuple(int(row) + anchors for row in cases),
    )


EXPERIMENTS = (
    _Experiment(
        "case_study",
        "Case study",
        "Anchors and test rows at the places that the model's states give them, and test rows that kNN Prompting predicts correctly "
        "and in-context learning does not.",
        lambda data: ([], []),
        defaults={"tasks": "dbpedia,sst2,trec,agnews,mr", "shots": (32,), "seeds": (1,)},
        matches=None,
    ),
)
