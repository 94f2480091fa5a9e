"""Case studies (figures): a map of anchors and test rows, and rows that kNN Prompting gets right where ICL does not.

Beside each kNN record stands an .npz file with texts, labels, predictions, neighbours and what the map is drawn from.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from knnprompt_jax.methods import method
from knnprompt_jax.paper import case_study, experiment
from knnprompt_jax.report import embedding, names, scores, sections
from knnprompt_jax.report.scores import Record

_CASES = 5


@dataclasses.dataclass(frozen=True)
class _CaseStudy(experiment.Experiment):
    def before_writing(self, folder: pathlib.Path, record: Record, context: method.Context) -> None:
        """Writes what the map is drawn from."""
        if record.method == "knn" and record.demo_shots < record.shots:
            case_study.write(case_study.path_of(folder, record), record, context)

    def section(self, records: Sequence[Record], folder: pathlib.Path) -> sections.Section:
        """Maps of the records; raises UserError where a file beside a record is no case study."""
        return dataclasses.replace(super().section(records, folder), maps=tuple(_maps(records, folder)))


def _maps(records: Sequence[Record], folder: pathlib.Path) -> Iterator[embedding.Map]:
    """A map for each task and model, of the first seed whose states are there."""
    groups = scores.pool(records, "model", "task")
    for place in names.ordered_places(("model", "task"), groups):
        for record in sorted(groups[place], key=lambda record: record.seed):
            if (path := case_study.path_of(folder, record)).is_file():
                yield _map(record, case_study.read(path))
                break


def _map(record: Record, study: case_study.CaseStudy) -> embedding.Map:
    words = _words(study)
    points = [
        embedding.Point(str(text), words[label], other=words[icl])
        for text, label, icl in zip(study.anchor_texts, study.anchor_labels, study.anchors_icl, strict=True)
    ]
    for row, text in enumerate(study.texts):
        near = zip(study.neighbours_Qk[row].tolist(), study.distances_Qk[row].tolist(), strict=True)
        true, knn, icl = (words[label[row]] for label in (study.true, study.knn, study.icl))
        points.append(embedding.Point(str(text), true, knn, icl, tuple(near)))
    anchors, tests = len(study.anchor_texts), len(study.texts)
    task = names.task(record.task)
    caption = (
        f"{task}, m = {record.shots}, seed {record.seed}: t-SNE of {anchors} anchors and {tests} test rows by the Hellinger "
        f"distance of their distributions; shapes and colours are true labels. kNN Prompting is right in "
        f"{_percent(study.knn, study.true)}, in-context learning in {_percent(study.icl, study.true)} of the test rows, and in "
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
    drawn = np.random.default_rng(0).permutation(rows)[:_CASES]
    return tuple(int(row) + len(study.anchor_texts) for row in sorted(drawn))


def _percent(predicted: np.ndarray, true: np.ndarray) -> str:
    return f"{100 * float(np.mean(predicted == true)):.1f} %"


EXPERIMENTS = (
    _CaseStudy(
        "case_study",
        "Case study",
        "Anchors and test rows where the model's states place them, and test rows that kNN Prompting gets right and "
        "in-context learning wrong.",
        lambda shown: ([], []),
        defaults={"tasks": "dbpedia,sst2,trec,agnews,mr", "shots": (32,), "seeds": (1,)},
        matches=None,
    ),
)
