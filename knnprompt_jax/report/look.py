"""The page of a saved classifier's anchors: each anchor is classified by the others, so that no further text is needed."""

import itertools
import pathlib
import shlex
from collections.abc import Mapping

import numpy as np
import pandas as pd

from knnprompt_jax import files, parallel, tables
from knnprompt_jax.classifier import base, estimator
from knnprompt_jax.report import anchors as anchors_lib
from knnprompt_jax.report import drawing, maps, measures, page
from knnprompt_jax.report.anchors import ClassifiedAnchors
from knnprompt_jax.report.page import Listing, Section
from knnprompt_jax.rules import evidence
from knnprompt_jax.rules.choice import Choice
from knnprompt_jax.runs import changing
from knnprompt_jax.settings import commands
from knnprompt_jax.store import distances, search

_NEIGHBOURHOOD = 10  # Nearest anchors that cast doubt on a label; the vote has its own k.
_MOST = 20  # Rows of the listing.
_MOST_POINTS = 1000  # Anchors on the map.


def run(settings: commands.LookSettings) -> str:
    """Write the page of a saved classifier and the table of labels that may be wrong; return what the binary prints.

    Raises:
      UserError: there is no saved classifier, it has too few anchors, or the output is inside a saved classifier.
    """
    output = page.folder(settings.output)
    classifier = estimator.load(settings.store, mesh=parallel.make_mesh(0, settings.mesh_model))
    anchors = read(classifier)
    table = anchors_lib.suggestions(anchors)
    rows = [table.columns, *table.itertuples(index=False)]
    suggestions = tables.to_csv(rows).encode("utf-8", "backslashreplace")
    path = _kept_apart(output / commands.SUGGESTIONS, suggestions)
    files.write(path, suggestions)  # Before the page is drawn: a person may edit the table meanwhile.
    relabel = f"knnprompt fit --store={shlex.quote(settings.store)} --relabel={shlex.quote(str(path))}"
    with drawing.style():
        sections = build(
            anchors, table, f"in {path.name}, clear “suggested” where “label” is right; then run {relabel}"
        )
    num_demonstrations = len(classifier.demonstrations_)
    text = (
        f"{len(anchors.texts):,} anchors of task {classifier.task.name}, read by {classifier.model.name} "
        f"{f'after {num_demonstrations}' if num_demonstrations else 'without'} demonstrations. {_expectation(classifier.choice_, anchors)}"
    )
    written = page.write(output, f"Anchors of {pathlib.Path(settings.store).resolve().name}", text, sections)
    unchecked = f" (the {num_demonstrations} demonstrations are not listed)" * bool(num_demonstrations)
    lines = [
        f"{len(table):,} of {len(anchors.texts):,} anchors may be mislabelled{unchecked}: {path}",
        f"page: {written}",
    ]
    if len(table):
        lines.append(f"next: in {path.name}, clear `suggested` where `label` is right; then {relabel}")
    return "\n".join(lines)


def _kept_apart(path: pathlib.Path, content: bytes) -> pathlib.Path:
    """Return the path, with a number if its file has other content, which a person may have edited."""
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    free = (
        candidate
        for candidate in itertools.chain([path], numbered)
        if not candidate.exists() or candidate.read_bytes() == content
    )
    return next(free)


def _expectation(choice: Choice, anchors: ClassifiedAnchors) -> str:
    """Return the estimate for new texts, which `fit` prints too, or else how many anchors the others classify correctly."""
    if choice.estimate and not choice.is_earlier:
        below = "Below, each anchor is classified by the others. These scores are somewhat too high, because the rule was chosen by them."
        return f"Expect {choice.estimate.words} on new texts. {below}"
    optimistic = " This is optimistic, because the rule was chosen on these anchors." if choice.candidates else ""
    return f"Each anchor is classified by the others: {100 * np.mean(anchors.predicted_N == anchors.y_N):.1f} % are right.{optimistic}"


def read(classifier: base.Classifier) -> ClassifiedAnchors:
    """Return a fitted classifier's anchors and their neighbours; raise UserError as `Classifier.left_out`."""
    predicted_N, shares_NC = classifier.left_out()
    store, task, rule = classifier.store_, classifier.task, classifier.rule_
    states, most = classifier.device_states(), min(max(rule.k, _NEIGHBOURHOOD), len(store) - 1)
    nearest = evidence.neighbours(store, search.SearchOptions(most, rule.distance), states)
    examples = [classifier.anchors_[number] for number in store.ids_N.tolist()]
    return ClassifiedAnchors(
        labels=task.label_words,
        names=task.labels,
        ids=tuple(store.ids_N.tolist()),
        user_ids=tuple(example.ids for example in examples),
        texts=tuple(task.retrieval_text(example) for example in examples),
        demonstrations=tuple(
            (example.row, task.retrieval_text(example), example.label) for example in classifier.demonstrations_
        ),
        y_N=np.asarray(store.labels_N),
        near_Nk=np.asarray(nearest.indices_Qk),
        distances_Nk=np.asarray(nearest.distances_Qk),
        predicted_N=predicted_N,
        shares_NC=shares_NC,
        hidden_NE=np.asarray(states.hidden_NE, np.float32),
        unit=distances.get(rule.distance).unit,
        has_probabilities=isinstance(classifier, estimator.AutoClassifier),
    )


def build(anchors: ClassifiedAnchors, table: pd.DataFrame, advice: str) -> list[Section]:
    """Return the page's sections; `table` has the suggestions, and `advice` says how to correct labels."""
    suspects = f"Anchors whose label others contradict. To correct them: {advice}"
    places = "Similar anchors lie together. Check an anchor that lies among anchors of another label."
    words = dict(zip(anchors.names, anchors.labels, strict=True))
    return [
        Section("suspects", "Probably mislabelled", suspects, listings=(_listing(table, words),)),
        Section("map", "Map", places, maps=(_map(anchors),)),
        measures.confusion(anchors.measured, anchors.labels, "anchors"),
        measures.calibration(anchors.measured, "anchors"),
    ]


def _map(anchors: ClassifiedAnchors) -> maps.Map:
    """Return a map of at most `_MOST_POINTS` anchors, drawn at random; neighbours that were not drawn are left out."""
    count = len(anchors.texts)
    drawn = np.sort(np.random.default_rng(0).permutation(count)[:_MOST_POINTS])
    places = {anchor: place for place, anchor in enumerate(drawn.tolist())}
    points = []
    for anchor in places:
        near = zip(anchors.near_Nk[anchor].tolist(), anchors.distances_Nk[anchor].tolist(), strict=True)
        kept = tuple((places[anchor], distance) for anchor, distance in near if anchor in places)
        true, predicted = (anchors.labels[y_N[anchor]] for y_N in (anchors.y_N, anchors.predicted_N))
        points.append(maps.Point(anchors.texts[anchor], true, predicted, neighbours=kept))
    share = "" if len(drawn) == count else f"{len(drawn):,} of {count:,} anchors, drawn at random: "
    return maps.Map(
        title="",
        caption=f"{share}t-SNE of hidden states; shapes and colours are labels. Hollow: the other anchors predict another label.",
        labels=anchors.labels,
        points=tuple(points),
        places_N2=maps.places(anchors.hidden_NE[drawn]),
        unit=anchors.unit,
        row="anchor",
    )


def _listing(table: pd.DataFrame, words: Mapping[str, str]) -> Listing:
    """Return the first rows of the table of suggestions, with the label words, as in the other sections."""
    rows = [
        tuple(
            words.get(text, text) if column in (changing.LABEL, changing.SUGGESTED) else text
            for column, text in zip(table.columns, (tables.from_cell(str(cell)) for cell in row), strict=True)
        )
        for row in table.head(_MOST).itertuples(index=False)
    ]
    caption = (
        f"The first {_MOST} of {len(table):,} rows of the table." if len(table) > _MOST else "The rows of the table."
    )
    why = "Order: by the suggestion's lead over the present label. Why: the nearest anchors with the suggested label, or its probability."
    return Listing(f"{caption} {why}", tuple(table.columns), tuple(rows))
