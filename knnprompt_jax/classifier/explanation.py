"""An explanation of a label: contributions of the text's words, and neighbours with their distance terms."""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.tasks.task import Example

MAX_PARTS = 64  # A longer text is split into parts of several words.
_MAX_WIDTH = 100  # Characters of a printed text.
_MAX_PART_WIDTH = 60  # Characters of a printed part.
_MAX_LISTED = 10  # Printed classes and parts.
_MAX_NEIGHBOURS = 3  # Printed neighbours.
_MIN_CONTRIBUTION = 0.005  # Smaller contributions are not printed.


@dataclasses.dataclass(frozen=True)
class Part:
    """A word of a text, or a few consecutive words.

    Attributes:
        field: the name of its field.
        start, stop: its position in the field, in characters.
        contribution: the probability of the label minus the probability without this part.
    """

    field: str
    start: int
    stop: int
    contribution: float = 0.0

    def of(self, fields: Mapping[str, str]) -> str:
        """Return the part's text."""
        return fields[self.field][self.start : self.stop]


@dataclasses.dataclass(frozen=True)
class Reason:
    """A term of a distance; all terms add up to it.

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


@dataclasses.dataclass(frozen=True)
class Neighbour:
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
        lines = [_line(self.fields, _MAX_WIDTH), f"  label {self.label}: {shares}", f"  {self._contributions()}"]
        if self.opinions:
            lines.append(f"  experts alone: {'; '.join(self.opinions)}")
        lines.append(f"nearest anchors by {self.measure}:")
        if any(near.reasons for near in self.neighbours):
            lines.append(
                "  below each: the next tokens that add most to its distance, in nats (their probability after your text, after the anchor)"
            )
        for near in self.neighbours[:_MAX_NEIGHBOURS]:
            text = _line(near.fields, _MAX_WIDTH)
            lines.append(f"  anchor {near.id}, label {near.label}, distance {near.distance:z.4f}: {text}")
            if near.reasons:
                lines.append(f"    {', '.join(map(str, near.reasons))}")
        return "\n".join(errors.printable(line, kept="") for line in lines)

    def _contributions(self) -> str:
        """Return the largest contributions in one line."""
        parts = [part for part in self.parts if abs(part.contribution) >= _MIN_CONTRIBUTION]
        if not parts:
            return "no single word changes the probability of the label"
        parts = sorted(parts, key=lambda part: -abs(part.contribution))[:_MAX_LISTED]
        listed = [f"{_line({'': part.of(self.fields)}, _MAX_PART_WIDTH)!r} {part.contribution:+.2f}" for part in parts]
        return f"words that change the probability of {self.label}: {', '.join(listed)}"


def explain(fitted: Fitted, text: Any, num_tokens: int, cache: states_lib.Cache | None = None) -> Explanation:
    """Explain the label of one text or row, with the `num_tokens` largest terms of each neighbour's distance.

    Raises:
        UserError: the anchors are class means.
    """
    (query,) = arguments.queries(fitted.task, [text])
    fitted.check_neighbours()
    parts = split(query.fields)
    readings = fitted.read([query, *without(query, parts)], cache)
    predictions = fitted.answer(readings)
    classes = fitted.classes.tolist()
    label = predictions.labels[0].item()
    shares_Q = predictions.probabilities[:, classes.index(label)].tolist()
    distance = distances.get(fitted.content.vote.distance)
    if num_tokens and distance.terms is None:
        logging.warning("no tokens: %s is no sum over tokens; a KL divergence is (distance='kl')", distance.title)
    return Explanation(
        fields=query.fields,
        label=label,
        shares=dict(zip(classes, predictions.probabilities[0].tolist(), strict=True)),
        parts=tuple(
            dataclasses.replace(part, contribution=shares_Q[0] - share)
            for part, share in zip(parts, shares_Q[1:], strict=True)
        ),
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
    for member, p_C in sorted(zip(fitted.pool.members, p_JC, strict=True), key=lambda pair: -pair[0].share):
        label = fitted.content.labels_C[p_C.argmax()]
        found.append(f"{member.title}: {label} {p_C.max():.2f} (share {100 * member.share:.0f} %)")
    return tuple(found)


def _neighbours(
    fitted: Fitted, readings: Readings, predictions: arguments.Predictions, num_tokens: int
) -> tuple[Neighbour, ...]:
    """Return the neighbours of the first text."""
    states = fitted.first_view(readings).take_replicated(slice(1))
    ids_k = predictions.ids[0]
    indices_k = (fitted.store.ids_N == ids_k[:, None]).argmax(-1)
    reasons_k = reasons(fitted, states, indices_k, num_tokens) if num_tokens else [()] * len(ids_k)
    found = []
    for index, distance, largest in zip(indices_k, predictions.distances[0].tolist(), reasons_k, strict=True):
        anchor = fitted.anchors[index]
        label = fitted.content.labels_C[fitted.task.class_index(anchor.label)].item()
        found.append(Neighbour(anchor.row, label, anchor.fields, distance, largest))
    return tuple(found)


def split(fields: Mapping[str, str]) -> list[Part]:
    """Split texts into words, or into parts of several words where there are more than `MAX_PARTS`."""
    words = {field: list(re.finditer(r"\S+", text)) for field, text in fields.items()}
    count = math.ceil(sum(map(len, words.values())) / MAX_PARTS)
    return [
        Part(field, members[at].start(), members[min(at + count, len(members)) - 1].end())
        for field, members in words.items()
        for at in range(0, len(members), count)
    ]


def without(example: Example, parts: Sequence[Part]) -> Iterator[Example]:
    """Yield the example without each of the parts."""
    for part in parts:
        text = example.fields[part.field]
        before = text[: part.start]
        after = text[part.stop :]
        left = before + after.lstrip() if after.strip() else before.rstrip()
        yield dataclasses.replace(example, fields={**example.fields, part.field: left})


def reasons(fitted: Fitted, states: lm.States, indices_k: np.ndarray, count: int) -> list[tuple[Reason, ...]]:
    """Return the `count` largest terms of the distance between a text, of which `states` has one row, and each anchor.

    Terms of tokens that differ only in case and blanks are added up. A distance that is no sum over tokens has no
    terms.

    Args:
        indices_k: the anchors' indices in the store.
    """
    distance = distances.get(fitted.content.vote.distance)
    if distance.terms is None:
        return [()] * len(indices_k)
    head = fitted.model.head
    label_tokens: Sequence[int] = ()
    if distance.reads_label_words:
        label_tokens = layout.label_tokens(fitted.task, fitted.model.tokenize, fitted.content.options.label_token)
    anchors = jax.tree.map(jnp.asarray, rowwise.take(fitted.states.without_blocks(), indices_k))
    logp_W = distances.represent(head, states.without_blocks(), distance.representation, label_tokens)[0]
    logk_kW = distances.represent(head, anchors, distance.representation, label_tokens)
    terms_kW, p_W, k_kW = distance.explain(logp_W, logk_kW)
    if distance.reads_label_words:
        texts = np.array(fitted.task.label_words)
        groups_W = np.arange(fitted.task.num_classes)
    else:
        texts, groups_W = _vocabulary(fitted.model.tokenizer, len(head))
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


def _line(fields: Mapping[str, str], width: int) -> str:
    """Return texts in one line of at most this width."""
    line = " | ".join(" ".join(text[: 2 * width].split()) for text in fields.values())
    return line if len(line) <= width else f"{line[: width - 1]}…"
