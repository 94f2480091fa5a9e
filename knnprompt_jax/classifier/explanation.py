"""Why a text got its label: its neighbours, and the tokens that tell it from each of them."""

import dataclasses
import html
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from knnprompt_jax import errors, parallel
from knnprompt_jax.classifier import inputs
from knnprompt_jax.store import distances, placement, representations

if TYPE_CHECKING:
    from knnprompt_jax.classifier.estimator import KNNPrompting

_TITLES = tuple(distances.get(direction).title for direction in distances.DIRECTIONS)
_WIDTH = 100


@dataclasses.dataclass(frozen=True)
class Divergence:
    """A KL divergence in nats and its largest terms p(v) (log p(v) − log k(v)), each with its token."""

    nats: float
    tokens: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        return f"{self.nats:z.4f}: " + ", ".join(f"{token!r} {nats:z.4f}" for token, nats in self.tokens)


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """An anchor near the text.

    Attributes:
      id: its number in `anchors_`.
      label: its label, as it stood in y.
      fields: its texts by field name.
      distance: what it was ranked by, in the unit of the classifier's distance.
      forward: KL(text ‖ anchor): what the model expects to follow the text, and less so here.
      released: KL(anchor ‖ text): what it expects here, and less so after the text.
    """

    id: int
    label: Any
    fields: Mapping[str, str]
    distance: float
    forward: Divergence
    released: Divergence


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A text, its label, the classes' shares of the vote, and its neighbours, nearest first; notebooks show it as a table."""

    fields: Mapping[str, str]
    label: Any
    shares: Mapping[Any, float]
    neighbours: tuple[Neighbour, ...]

    @property
    def votes(self) -> str:
        return ", ".join(f"{label} {share:.2f}" for label, share in self.shares.items() if share)

    def __str__(self) -> str:
        lines = [_short(self.fields), f"  label {self.label}; votes {self.votes}"]
        for near in self.neighbours:
            lines += [_short(near.fields), f"  label {near.label}, distance {near.distance:z.4f}, anchor {near.id}"]
            lines += [f"  {title} {value}" for title, value in zip(_TITLES, (near.forward, near.released), strict=True)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            [near.label, f"{near.distance:z.4f}", _short(near.fields), near.forward, near.released]
            for near in self.neighbours
        ]
        head = _html_row("th", ["label", "distance", "text", *_TITLES])
        table = head + "".join(_html_row("td", row) for row in rows)
        text, label, votes = (html.escape(str(part)) for part in (_short(self.fields), self.label, self.votes))
        return f"<p>{text}<br><b>{label}</b>; votes {votes}</p><table>{table}</table>"


def explain(classifier: "KNNPrompting", text: Any, num_tokens: int) -> Explanation:
    """The neighbours of one text or row for a fitted classifier, and the `num_tokens` tokens that most tell it from each.

    Raises:
      UserError: the store keeps no distributions: a dense one of another representation, or class means are searched.
    """
    task, store, decode = classifier.task, classifier.store_, classifier.lm.tokenizer.decode
    (query,) = inputs.queries(task, [text])
    if classifier.centroid != "none":
        raise errors.UserError(f"centroid={classifier.centroid!r}: class means have no texts to explain by")
    if "forward" not in store.distances:
        raise errors.UserError(
            f"a dense store for distance={store.codec.built_for!r} keeps no distributions to explain by"
        )
    states = parallel.replicate(classifier.read([query]))
    said = classifier.answer_states(states)
    places_k = (store.ids_N == said.ids[0][:, None]).argmax(-1)
    keys = jax.tree.map(jnp.asarray, placement.take(store.unpadded.keys, places_k))
    logp_V = np.asarray(representations.log_probabilities(classifier.lm.head, states))[0]
    neighbours = []
    near = zip(said.ids[0].tolist(), said.distances[0].tolist(), store.codec.distributions(keys), strict=True)
    for number, distance, logk_V in near:
        anchor = classifier.anchors_[number]
        label = classifier.labels_[task.class_index(anchor.label)].item()
        told = [divergence(*pair, num_tokens, decode) for pair in ((logp_V, logk_V), (logk_V, logp_V))]
        neighbours.append(Neighbour(anchor.row, label, anchor.fields, distance, *told))
    shares = dict(zip(classifier.classes_.tolist(), said.probabilities[0].tolist(), strict=True))
    return Explanation(query.fields, said.labels[0].item(), shares, tuple(neighbours))


def divergence(logp_V: np.ndarray, logk_V: np.ndarray, num_tokens: int, decode: Callable[[int], str]) -> Divergence:
    """KL(p ‖ k) in float64 and its `num_tokens` largest terms."""
    logp_V, logk_V = (special.log_softmax(np.asarray(log_V, np.float64)) for log_V in (logp_V, logk_V))
    terms_V = np.exp(logp_V) * (logp_V - logk_V)
    largest = np.argsort(-terms_V, kind="stable")[:num_tokens]
    return Divergence(float(terms_V.sum()), tuple((decode(token), float(terms_V[token])) for token in largest.tolist()))


def _html_row(tag: str, cells: Sequence[Any]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in cells)}</tr>"


def _short(fields: Mapping[str, str]) -> str:
    """The texts in one line of bounded length."""
    text = " | ".join(" ".join(value[: 2 * _WIDTH].split()) for value in fields.values())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
