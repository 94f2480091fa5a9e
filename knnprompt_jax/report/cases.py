"""The case studies → maps."""

import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from knnprompt_jax.paper import case_study
from knnprompt_jax.report import embedding, names, scores
from knnprompt_jax.report.embedding import Point
from knnprompt_jax.report.scores import Record

_CHOSEN = 5


def maps(folder: pathlib.Path, records: Sequence[Record]) -> Iterator[embedding.Map]:
    """A map a task and model, of the first seed whose states are there.

    Raises:
        UserError: a file of states is not one.
    """
    groups = scores.pool(records, "model", "task")
    for place in names.ordered_places(("model", "task"), groups):
        found = sorted(groups[place], key=lambda record: record.seed)
        paths = [(record, case_study.path_of(folder, record)) for record in found]
        for record, path in [pair for pair in paths if pair[1].is_file()][:1]:
            yield _map(record, case_study.read(path))


def _map(record: Record, study: case_study.CaseStudy) -> embedding.Map:
    words = _words(study)
    points = [
        Point(str(text), words[label], other=words[icl])
        for text, label, icl in zip(study.anchor_texts, study.anchor_labels, study.anchors_icl, strict=True)
    ]
    for row, text in enumerate(study.texts):
        near = zip(study.neighbours_Qk[row].tolist(), study.distances_Qk[row].tolist(), strict=True)
        true, knn, icl = (words[label[row]] for label in (study.true, study.knn, study.icl))
        points.append(Point(str(text), true, knn, icl, tuple(near)))
    anchors, tests = len(study.anchor_texts), len(study.texts)
    task = names.task(record.task)
    caption = (
        f"{task}, m = {record.shots}, seed {record.seed}: t-SNE of {anchors} anchors and {tests} test rows by the Hellinger "
        f"distance of their distributions; colours are true labels. kNN Prompting is right in {_percent(study.knn, study.true)}, "
        f"in-context learning in {_percent(study.icl, study.true)} of the test rows, and in "
        f"{_percent(study.anchors_icl, study.anchor_labels)} of the anchors."
    )
    return embedding.Map(
        name=f"{names.plain(record.task)}-{names.plain(record.model)}",
        title=task,
        caption=caption,
        labels=tuple(words[label] for label in study.labels),
        points=tuple(points),
        places_N2=embedding.places(study.points),
        other="In-context learning",
        cases=_cases(study),
    )


def _words(study: case_study.CaseStudy) -> dict[str, str]:
    """What each label is called: its label word, or the label itself where words repeat."""
    shown = study.label_words if len(set(study.label_words)) == len(study.labels) else study.labels
    return dict(zip(study.labels.tolist(), map(str, shown), strict=True))


def _cases(study: case_study.CaseStudy) -> tuple[int, ...]:
    """Some test rows, drawn from those that kNN Prompting has right and in-context learning wrong, as points' indices."""
    rows = np.flatnonzero((study.knn == study.true) & (study.icl != study.true))
    drawn = np.random.default_rng(0).permutation(rows)[:_CHOSEN]
    return tuple(int(row) + len(study.anchor_texts) for row in sorted(drawn))


def _percent(predicted: np.ndarray, true: np.ndarray) -> str:
    return f"{100 * float(np.mean(predicted == true)):.1f} %"
