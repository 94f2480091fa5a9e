"""What the case study's map is drawn from: a file beside each kNN record, with all that a page needs to show."""

import dataclasses
import pathlib
import zipfile

import numpy as np

from knnprompt_jax import errors, files, lm
from knnprompt_jax.classifier import options as knn_options
from knnprompt_jax.methods import in_context, knn, method
from knnprompt_jax.runs import records
from knnprompt_jax.store import representations

NEIGHBOURS = 5
COMPONENTS = 50


@dataclasses.dataclass(frozen=True)
class CaseStudy:
    """N anchors and Q rows to classify; labels are label strings, `label_words` the words of `labels`.

    `points` [N + Q, ≤ 50] are the principal components of the square roots of the next-token distributions, anchors first:
    Euclidean distance between them is Hellinger's between distributions, but for the components left out.
    `neighbours_Qk` are the nearest anchors, nearest first, and `distances_Qk` their divergences in nats.
    `knn` and `icl` are the predictions of kNN Prompting and in-context learning, `anchors_icl` the latter's of the anchors.
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


def path_of(folder: pathlib.Path, record: records.Record) -> pathlib.Path:
    """Where the case study of a record stands."""
    return folder / pathlib.PurePath(record.name).with_suffix(".npz")


def write(path: pathlib.Path, record: records.Record, context: method.Context) -> None:
    """Writes the case study of a record of kNN Prompting."""
    study = _make(record, context)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.new_file(path) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **vars(study))


def read(path: pathlib.Path) -> CaseStudy:
    """The case study in a file; raises UserError where there is none."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return CaseStudy(**arrays)
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise errors.UserError(f"{path}: not a case study: {' '.join(str(error).split())}") from None


def _make(record: records.Record, context: method.Context) -> CaseStudy:
    problem, task = context.problem, context.problem.task
    anchors, queries = (context.states[rows] for rows in (method.anchors, method.queries))
    anchors_icl, icl = (
        in_context.predict_proba(context.head, states, context.label_ids) for states in (anchors, queries)
    )
    classifier = knn.fitted(context, knn_options.KNNOptions(**record.settings["options"]))
    nearest = classifier.search(queries, min(NEIGHBOURS, len(anchors)))
    words = np.array(task.labels)
    return CaseStudy(
        labels=words,
        label_words=np.array(task.label_words),
        anchor_texts=np.array([task.retrieval_text(row) for row in problem.split.anchors]),
        anchor_labels=np.array([row.label for row in problem.split.anchors]),
        anchors_icl=words[anchors_icl.argmax(-1)],
        texts=np.array([task.retrieval_text(row) for row in problem.evaluation]),
        true=np.array(record.true),
        knn=np.array(record.predicted),
        icl=words[icl.argmax(-1)],
        neighbours_Qk=np.asarray(nearest.indices_Qk),
        distances_Qk=np.asarray(nearest.distances_Qk),
        points=_points(context, lm.concatenate([anchors, queries])),
    )


def _points(context: method.Context, states: lm.States) -> np.ndarray:
    """Principal components, from the inner products of all pairs: there are fewer prompts than tokens."""
    roots_NV = np.exp(np.asarray(representations.log_probabilities(context.head, states), np.float64) / 2)
    roots_NV -= roots_NV.mean(0)
    variances, axes = np.linalg.eigh(roots_NV @ roots_NV.T)
    kept = slice(-1, -1 - min(COMPONENTS, len(axes)), -1)
    return (axes[:, kept] * np.sqrt(np.maximum(variances[kept], 0))).astype(np.float32)
