"""Why a text got its label: what its words contribute, and its neighbours with what makes them near."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from knnprompt_jax import errors, parallel
from knnprompt_jax.classifier import answering, contributions, explanation_text, inputs, reasons
from knnprompt_jax.classifier.core import Classifier
from knnprompt_jax.store import distances


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """An anchor near the text.

    Attributes:
      id: its number in `anchors_`.
      label: its label, as it stood in y.
      fields: its texts by field name.
      distance: what it was ranked by, in the unit of the classifier's distance.
      reasons: the largest parts of that distance; none where it is no divergence.
    """

    id: int
    label: Any
    fields: Mapping[str, str]
    distance: float
    reasons: tuple[reasons.Reason, ...]


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why a text got its label; printed with colours in a terminal, and shown with them in a notebook.

    Attributes:
      fields: its texts by field name.
      label: the label.
      shares: the classes' probabilities.
      parts: its words with what they contribute to the label's probability.
      neighbours: the nearest anchors, nearest first.
      measure: the distance by which they are near, with its unit.
      voted: whether the neighbours had a say: to a linear probe alone they are examples.
    """

    fields: Mapping[str, str]
    label: Any
    shares: Mapping[Any, float]
    parts: tuple[contributions.Part, ...]
    neighbours: tuple[Neighbour, ...]
    measure: str
    voted: bool

    def __str__(self) -> str:
        return explanation_text.to_terminal(self)

    def _repr_html_(self) -> str:
        return explanation_text.to_html(self)


def explain(classifier: Classifier, text: Any, num_tokens: int) -> Explanation:
    """Why a fitted classifier gives one text or row its label, with the `num_tokens` largest parts of each neighbour's distance.

    Raises:
      UserError: class means are searched.
    """
    (query,) = inputs.queries(classifier.task, [text])
    if classifier.centroid != "none":
        raise errors.UserError(f"centroid={classifier.centroid!r}: class means have no texts to explain by")
    parts = contributions.parts(query.fields)
    states = parallel.replicate(classifier.read([query, *contributions.without(query, parts)]))
    said = answering.of_states(classifier, states)
    place = classifier.classes_.tolist().index(said.labels[0].item())
    shares = dict(zip(classifier.classes_.tolist(), said.probabilities[0].tolist(), strict=True))
    distance = distances.get(classifier.rule_.distance)
    return Explanation(
        fields=query.fields,
        label=said.labels[0].item(),
        shares=shares,
        parts=contributions.of(parts, float(said.probabilities[0, place]), said.probabilities[1:, place]),
        neighbours=_neighbours(classifier, states[:1], said.ids[0], said.distances[0], num_tokens),
        measure=f"{distance.title}, {distance.unit}",
        voted=classifier.rule_.rule != "probe",
    )


def _neighbours(
    classifier: Classifier, states: Any, ids_k: np.ndarray, distances_k: np.ndarray, num_tokens: int
) -> tuple[Neighbour, ...]:
    """The anchors of these ids, at these distances from the text whose states are given."""
    places_k = (classifier.store_.ids_N == ids_k[:, None]).argmax(-1)
    told = reasons.of(classifier, states, places_k, num_tokens)
    neighbours = []
    for number, distance, each in zip(ids_k.tolist(), distances_k.tolist(), told, strict=True):
        anchor = classifier.anchors_[number]
        label = classifier.labels_[classifier.task.class_index(anchor.label)].item()
        neighbours.append(Neighbour(number, label, anchor.fields, distance, each))
    return tuple(neighbours)
