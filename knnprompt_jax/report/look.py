"""A saved classifier → a page on its anchors, each classified by the others: no text is needed beside them."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import files, options, parallel
from knnprompt_jax.classifier import base, estimator, evidence
from knnprompt_jax.report import anchor_figures, anchor_listings, drawing, page, suggestions
from knnprompt_jax.report.neighbourhood import ClassifiedAnchors
from knnprompt_jax.report.sections import Section
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import distances, search

_NEIGHBOURHOOD = 10  # Nearest anchors by which labels are doubted; the vote has its own k.
_TITLES = {
    "map": (
        "Map",
        "Anchors about which the model says the same lie together. Those that stand among another label's are worth reading.",
    ),
    "classes": ("What is taken for what", "Each anchor by its label and by what the others take it for."),
    "calibration": ("Calibration", "Whether the probability of a label says how often it is right."),
    "misleading": (
        "Anchors that mislead most",
        "Often near to texts of other classes: typical of no class, or labelled wrongly.",
    ),
    "suspects": (
        "Probably mislabelled",
        f"Anchors of which the others say another label, and are sure. {suggestions.FILE} beside this page has all of them: "
        "go through its column suggested, which fit --relabel reads back.",
    ),
    "duplicates": (
        "Near-duplicates",
        "Pairs of which the model says almost the same. Where their labels differ, one may be wrong.",
    ),
}


@dataclasses.dataclass(frozen=True)
class LookOptions(settings_lib.SavedOptions):
    """What to draw and where."""

    output: str = options.option("look", f"Folder to write index.html and {suggestions.FILE} to.", needed=True)
    points: int = options.option(1000, "Anchors on the map at most.", least=1)


@dataclasses.dataclass(frozen=True)
class Written:
    """Where the page is, and the table of labels that may be wrong."""

    page: pathlib.Path
    suggestions: pathlib.Path


def run(chosen: LookOptions) -> Written:
    """Writes the page of a saved classifier; raises UserError where there is none, or too few anchors."""
    place = page.folder(chosen.output)
    classifier = estimator.load(chosen.store, mesh=parallel.make_mesh(0, chosen.mesh_model))
    anchors = read(classifier)
    with drawing.style():
        sections = build(anchors, chosen.points)
    text = (
        f"{len(anchors.texts):,} anchors of task {classifier.task.name}, read by {classifier.model.name} after "
        f"{len(classifier.demonstrations_)} demonstrations. Each anchor is classified by the others, as a "
        f"new text would be: {100 * anchors.accuracy:.1f} % are right."
    )
    written = page.write(page.Page(f"Anchors of {pathlib.Path(chosen.store).name}", text, sections), place)
    with files.new_file(place / suggestions.FILE) as unfinished:
        unfinished.write_text(suggestions.to_csv(anchors), encoding="utf-8")
    return Written(written, place / suggestions.FILE)


def read(classifier: base.Classifier) -> ClassifiedAnchors:
    """A fitted classifier's anchors and their neighbours; raises UserError where there are no more than k anchors."""
    store, task, rule = classifier.store_, classifier.task, classifier.rule_
    k = min(rule.k, len(store) - 1)
    states = classifier.device_states()
    most = max(k, min(_NEIGHBOURHOOD, len(store) - 1))
    nearest = evidence.neighbours(store, search.SearchOptions(most, rule.distance), states)
    predicted_N, shares_NC = classifier.left_out()
    examples = [classifier.anchors_[number] for number in store.ids_N.tolist()]
    return ClassifiedAnchors(
        labels=task.label_words if len(set(task.label_words)) == task.num_classes else task.labels,
        names=task.labels,
        ids=tuple(store.ids_N.tolist()),
        texts=tuple(task.retrieval_text(example) for example in examples),
        y_N=np.asarray(store.labels_N),
        near_Nk=np.asarray(nearest.indices_Qk),
        distances_Nk=np.asarray(nearest.distances_Qk),
        predicted_N=predicted_N,
        shares_NC=shares_NC,
        hidden_NE=np.asarray(states.hidden_NE, np.float32),
        k=k,
        unit=distances.get(rule.distance).unit,
        has_probabilities=isinstance(classifier, estimator.AutoClassifier),
    )


def build(anchors: ClassifiedAnchors, points: int) -> Sequence[Section]:
    """The page's sections; the map shows `points` anchors at most."""
    parts: dict[str, dict[str, Any]] = {
        "map": {"maps": (anchor_figures.map_of(anchors, points),)},
        "classes": {"listings": (anchor_listings.classes(anchors),), "matrices": (anchor_figures.confusion(anchors),)},
        "calibration": {"figures": (anchor_figures.calibration(anchors),)},
        "misleading": {"listings": (anchor_listings.misleading(anchors),)},
        "suspects": {"listings": (anchor_listings.suspects(anchors),)},
        "duplicates": {"listings": (anchor_listings.duplicates(anchors),)},
    }
    return [Section(name, *_TITLES[name], {}, **part) for name, part in parts.items()]
