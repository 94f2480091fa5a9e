"""From a classifier's options and rows to its choice: what is not named is tried, demonstrations at the cost of a pass for each number."""

import collections
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors, parallel
from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import choosing, demonstrations, evidence, inputs, options, passes
from knnprompt_jax.classifier.core import Classifier
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import distances
from knnprompt_jax.tasks.task import Example

Draw = tuple[Sequence[Example], Sequence[Example]]
"""Demonstrations, and the anchors beside them."""


def draws(classifier: Classifier, examples: Sequence[Example]) -> dict[int, Draw]:
    """Demonstrations and anchors for each number of demonstrations per class that is tried, those preferred first."""
    asked = classifier.demo_shots
    tried: Sequence[Any] = asked if isinstance(asked, list | tuple) else [asked]
    if asked == options.AUTO:
        tried = demonstrations.numbers(classifier.task, examples, classifier.lm)
    drawn: dict[int, Draw] = {}
    for shots in tried:
        draw = demonstrations.draw(classifier.task, examples, classifier.lm, shots, classifier.random_state)
        classifier.check(draw[1])
        drawn.setdefault(shots_of(draw[0]), draw)
    return drawn


def shots_of(shown: Sequence[Example]) -> int:
    """The demonstrations per class, of the class that has most."""
    return max(collections.Counter(example.label for example in shown).values(), default=0)


def choose(
    classifier: Classifier,
    draws: Mapping[int, Draw],
    states: Mapping[int, lm_lib.States] | None = None,
    grid: choosing.Grid | None = None,
) -> choosing.Choice:
    """The best for draws with these numbers of demonstrations per class, those preferred first.

    Those of the anchors are looked at that `sample` gives. They are read, unless there are `states` of all anchors of a draw.
    Candidates are from the grid, or those that the options leave open.
    """
    grid = grid or classifier.options_.grid()
    if len(draws) == 1 and classifier.options_.is_plain and len(grid.ks) * len(grid.distances) == 1:
        [(shots, (_, kept))] = draws.items()
        return choosing.Choice(grid.default(len(kept), shots))
    grid = dataclasses.replace(grid, distances=_comparable(classifier, grid))
    sets = [
        _evidence(classifier, shots, *draw, (states or {}).get(shots), grid.distances) for shots, draw in draws.items()
    ]
    return _told(choosing.choose(sets, grid, classifier.metric))


def compared(classifier: Classifier, draws: Mapping[int, Draw]) -> list[Example]:
    """The anchors by which `choose` compares draws: of those that are looked at, the ones that all have."""
    sets = [sample(kept, classifier.random_state) for _, kept in draws.values()]
    looked_at = [rows for rows in sets if len(rows) >= choosing.FEWEST] or sets
    common = set.intersection(*({example.row for example in rows} for rows in looked_at))
    return [example for example in looked_at[0] if example.row in common]


def choose_again(classifier: Classifier, grid: choosing.Grid, metric: str) -> choosing.Choice:
    """The best for a fitted classifier's anchors, with the demonstrations that there are and candidates from this grid."""
    shots, anchors = classifier.choice_.rule.demo_shots, list(classifier.anchors_.values())
    states = passes.on_devices(classifier.kept_states(), classifier.lm.mesh)
    names = _comparable(classifier, grid)
    return choosing.choose(
        [_evidence(classifier, shots, (), anchors, states, names)], dataclasses.replace(grid, distances=names), metric
    )


def shared_label_words(classifier: Classifier) -> str:
    """Which label words share a token, or nothing."""
    try:
        layout.label_ids(classifier.task, classifier.lm.tokenize, classifier.label_token)
        return ""
    except errors.UserError as error:
        return str(error)


def _evidence(
    classifier: Classifier,
    shots: int,
    shown: Sequence[Example],
    anchors: Sequence[Example],
    states: lm_lib.States | None,
    names: Sequence[str],
) -> evidence.Evidence:
    kept = sample(anchors, classifier.random_state)
    if states is None:
        states = classifier.read(kept, shown)
    elif len(kept) < len(anchors):
        places = {example.row: place for place, example in enumerate(anchors)}
        states = states[np.array([places[example.row] for example in kept])]
    ids, y_N = [example.row for example in kept], inputs.classes_of(classifier.task, kept)
    head, label_ids = classifier.lm.head, classifier.label_ids()
    return evidence.of(parallel.replicate(states), y_N, ids, shots, head, label_ids, names)


def _comparable(classifier: Classifier, grid: choosing.Grid) -> tuple[str, ...]:
    """The distances of the grid, but for those between label words that share a token, unless there are no others."""
    names = grid.distances
    if shared_label_words(classifier):
        return tuple(name for name in names if not distances.get(name).reads_label_words) or names
    return names


def sample(rows: Sequence[Example], seed: int) -> list[Example]:
    """At most `evidence.LIMIT` of the rows, drawn at random, in their order: those that are looked at."""
    if len(rows) <= evidence.LIMIT:
        return list(rows)
    drawn = np.random.default_rng(seed).permutation(max(example.row for example in rows) + 1)
    places = {row: place for place, row in enumerate(drawn.tolist())}
    kept = {example.row for example in sorted(rows, key=lambda example: places[example.row])[: evidence.LIMIT]}
    return [example for example in rows if example.row in kept]


def _told(choice: choosing.Choice) -> choosing.Choice:
    """The choice, whose line stands on standard error."""
    if choice.candidates and parallel.is_main():
        print(choice.line, file=sys.stderr, flush=True)
    return choice
