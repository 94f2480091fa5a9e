"""Why a text got its label: its neighbours, and the tokens that tell it from each of them."""

import dataclasses
import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from knnprompt_jax import errors
from knnprompt_jax.store import distances, kernel, placement
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks.task import Example

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


def neighbours(
    store: store_lib.Store,
    nearest: kernel.Neighbours,
    logp_V: np.ndarray,
    examples: Mapping[int, Example],
    value_of: Callable[[str], Any],
    num_tokens: int,
    decode: Callable[[int], str],
) -> tuple[Neighbour, ...]:
    """What is told of the anchors nearest to a query.

    Args:
      logp_V: log-probabilities after the query.
      examples: anchors by their ids.
      value_of: a label as users know it.
      decode: a token's text.

    Raises:
      UserError: the store keeps no distributions.
    """
    if "forward" not in store.distances:
        raise errors.UserError(
            f"a dense store for distance={store.codec.built_for!r} keeps no distributions to explain by"
        )
    places_k, distances_k = np.asarray(nearest.indices_Qk)[0], np.asarray(nearest.distances_Qk)[0]
    keys = jax.tree.map(jnp.asarray, placement.take(store.unpadded.keys, places_k))
    told = []
    for place, distance, logk_V in zip(places_k, distances_k, store.codec.distributions(keys), strict=True):
        example = examples[int(store.ids_N[place])]
        forward = divergence(logp_V, logk_V, num_tokens, decode)
        released = divergence(logk_V, logp_V, num_tokens, decode)
        told.append(Neighbour(example.row, value_of(example.label), example.fields, float(distance), forward, released))
    return tuple(told)


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
