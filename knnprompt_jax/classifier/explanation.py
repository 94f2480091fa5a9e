"""An explanation of a label: contributions of the text's words, and neighbours with their distance terms."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from knnprompt_jax.classifier import arguments
from knnprompt_jax.classifier.experts.expert import Readings
from knnprompt_jax.classifier.fitted import Fitted
from knnprompt_jax.common import errors
from knnprompt_jax.datastore import distances, rowwise
from knnprompt_jax.inference import lm
from knnprompt_jax.inference import states as states_lib

MAX_PARTS = 64  # A longer text is split into parts of several words.
_MAX_WIDTH = 100  # Characters of a printed text.
_MAX_PART_WIDTH = 60  # Characters of a printed part.
_MAX_LISTED = 10  # Printed classes and parts.
_MAX_NEIGHBOURS = 3  # Printed neighbours.
_MIN_CONTRIBUTION = 0.005  # Smaller contributions are not printed.


class Part(NamedTuple):
    """A word of a text, or a few consecutive words; and the probability of the label minus that without this part."""

    text: str
    contribution: float


class Reason(NamedTuple):
    """One token's share of a distance.

    Attributes:
        text: what follows the prompt: a label word, or tokens that differ only in case and blanks.
        nats: the sum of these tokens' terms.
        after_text, after_anchor: their probability after the text and after the anchor.
    """

    text: str
    nats: float
    after_text: float
    after_anchor: float

    def __str__(self) -> str:
        probabilities = f"{100 * self.after_text:.2g} %, {100 * self.after_anchor:.2g} %"
        return f"{self.text!r} {self.nats:z.4f} ({probabilities})"


class Neighbour(NamedTuple):
    """An anchor near the text.

    It has an id in `anchors_`, a label as in y, fields, a distance and the largest terms of that distance.
    """

    id: int
    label: Any
    fields: Mapping[str, str]
    distance: float
    reasons: tuple[Reason, ...]


@dataclasses.dataclass(frozen=True)
class Explanation:
    """An explanation of a label, which prints as a few lines.

    Attributes:
        fields: its texts by field name.
        label: the predicted label.
        shares: the classes' probabilities.
        parts: its words with their contributions to the label's probability.
        neighbours: the nearest anchors, nearest first.
        measure: the name and unit of the distance.
        opinions: what each expert says alone, the largest share first; empty for `KNNPrompting`.
    """

    fields: Mapping[str, str]
    label: Any
    shares: Mapping[Any, float]
    parts: tuple[Part, ...]
    neighbours: tuple[Neighbour, ...]
    measure: str
    opinions: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the text, the probabilities, the largest contributions, and the neighbours as lines."""
        classes = sorted(self.shares.items(), key=lambda item: -item[1])[:_MAX_LISTED]
        shares = ", ".join(f"{label} {share:.3f}" for label, share in classes if share >= _MIN_CONTRIBUTION)
        text = _line(self.fields.values(), _MAX_WIDTH)
        lines = [text, f"  label {self.label}: {shares}", f"  {self._contributions()}"]
        if self.opinions:
            lines.append(f"  experts alone: {'; '.join(self.opinions)}")
        lines.append(f"nearest anchors by {self.measure}:")
        if any(near.reasons for near in self.neighbours):
            lines.append("  below each: its largest terms, in nats (the probability after your text, after the anchor)")
        for near in self.neighbours[:_MAX_NEIGHBOURS]:
            text = _line(near.fields.values(), _MAX_WIDTH)
            lines.append(f"  anchor {near.id}, label {near.label}, distance {near.distance:z.4f}: {text}")
            if near.reasons:
                lines.append(f"    {', '.join(map(str, near.reasons))}")
        return "\n".join(errors.printable(line, kept="") for line in lines)

    def _contributions(self) -> str:
        """Return the largest contributions in one line."""
        parts = sorted(self.parts, key=lambda part: -abs(part.contribution))[:_MAX_LISTED]
        listed = [
            f"{_line([part.text], _MAX_PART_WIDTH)!r} {part.contribution:+.2f}"
            for part in parts
            if abs(part.contribution) >= _MIN_CONTRIBUTION
        ]
        if not listed:
            return "no single word changes the probability of the label"
        return f"words that change the probability of {self.label}: {', '.join(listed)}"


def explain(fitted: Fitted, text: Any, num_tokens: int, cache: states_lib.Cache | None = None) -> Explanation:
    """Explain the label of one text or row, with the `num_tokens` largest terms of each neighbour's distance."""
    (query,) = arguments.queries(fitted.task, [text])
    parts = list(split(query.fields))
    readings = fitted.read([query, *(dataclasses.replace(query, fields=fields) for _, fields in parts)], cache)
    predictions = fitted.answer(readings)
    classes = fitted.classes.tolist()
    label = predictions.labels[0].item()
    share, *shares = predictions.probabilities[:, classes.index(label)].tolist()
    distance = distances.get(fitted.content.vote.distance)
    if num_tokens and distance.terms is None:
        logging.warning("no tokens: %s is no sum over tokens; a KL divergence is (distance='kl')", distance.title)
    return Explanation(
        fields=query.fields,
        label=label,
        shares=dict(zip(classes, predictions.probabilities[0].tolist(), strict=True)),
        parts=tuple(Part(words, share - without) for (words, _), without in zip(parts, shares, strict=True)),
        neighbours=_neighbours(fitted, readings, predictions, num_tokens),
        measure=f"{distance.title}, {distance.unit}",
        opinions=_opinions(fitted, readings.take(np.arange(1))),
    )


def _opinions(fitted: Fitted, readings: Readings) -> tuple[str, ...]:
    """Return what each expert says of one text: its title, its label with the probability, and its share."""
    if fitted.pool is None:
        return ()
    found = []
    p_JC = fitted.pool.opinions(readings)[:, 0]
    for member, p_C in sorted(zip(fitted.pool.choice.used, p_JC, strict=True), key=lambda pair: -pair[0].share):
        label = fitted.content.labels_C[p_C.argmax()]
        found.append(f"{member.title}: {label} {p_C.max():.2f} (share {100 * member.share:.0f} %)")
    return tuple(found)


def _neighbours(
    fitted: Fitted, readings: Readings, predictions: arguments.Predictions, num_tokens: int
) -> tuple[Neighbour, ...]:
    """Return the neighbours of the first text."""
    states = fitted.first_view(readings).take_replicated(slice(1))
    indices_k = (fitted.store.ids_N == predictions.ids[0][:, None]).argmax(-1)
    found = []
    reasons_k = reasons(fitted, states, indices_k, num_tokens)
    for index, distance, largest in zip(indices_k, predictions.distances[0].tolist(), reasons_k, strict=True):
        anchor = fitted.content.anchors[index]
        label = fitted.content.labels_C[fitted.task.class_index(anchor.label)].item()
        found.append(Neighbour(anchor.row, label, anchor.fields, distance, largest))
    return tuple(found)


def split(fields: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each word, and the fields without it; several words at a time where there are more than `MAX_PARTS`."""
    count = math.ceil(sum(len(text.split()) for text in fields.values()) / MAX_PARTS)
    for field, text in fields.items():
        words = list(re.finditer(r"\S+", text))
        for at in range(0, len(words), count):
            start = words[at].start()
            stop = words[at : at + count][-1].end()
            after = text[stop:]
            left = text[:start] + after.lstrip() if after.strip() else text[:start].rstrip()
            yield text[start:stop], {**fields, field: left}


def reasons(fitted: Fitted, states: lm.States, indices_k: np.ndarray, count: int) -> list[tuple[Reason, ...]]:
    """Return the `count` largest terms of the distance between a text, of which `states` has one row, and each anchor.

    Terms of tokens that differ only in case and blanks are added up. A distance that is no sum over tokens has no
    terms.

    Args:
        indices_k: the anchors' indices in the store.
    """
    distance = distances.get(fitted.content.vote.distance)
    if not count or distance.terms is None:
        return [()] * len(indices_k)
    head = fitted.model.head
    if distance.reads_label_words:
        texts = np.array(fitted.task.label_words)
        groups_W = np.arange(fitted.task.num_classes)
    else:
        texts, groups_W = _vocabulary(fitted.model.tokenizer, len(head))
    anchors = jax.tree.map(jnp.asarray, rowwise.take(fitted.states, indices_k))
    tokens = fitted.label_tokens
    logp_W = distances.represent(head, states.without_activations(), distance.representation, tokens)[0]
    logk_kW = distances.represent(head, anchors, distance.representation, tokens)
    terms_kW, p_W, k_kW = distance.explain(logp_W, logk_kW)
    found = []
    for terms_W, k_W in zip(terms_kW, k_kW, strict=True):
        sums = [np.bincount(groups_W, values_W, len(texts)) for values_W in (terms_W, p_W, k_W)]
        order = np.argsort(-sums[0], kind="stable")[:count].tolist()
        found.append(tuple(Reason(str(texts[at]), *(float(values[at]) for values in sums)) for at in order))
    return found


@functools.lru_cache(maxsize=1)
def _vocabulary(tokenizer: Any, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct texts of tokens without case and outer blanks, and the index [V] of each token's text."""
    texts = tokenizer.batch_decode([[token] for token in range(size)])
    return np.unique([text.strip().casefold() or text for text in texts], return_inverse=True)


def _line(texts: Iterable[str], width: int) -> str:
    """Return texts in one line of at most this width."""
    line = " | ".join(" ".join(text[: 2 * width].split()) for text in texts)
    return line if len(line) <= width else f"{line[: width - 1]}…"
