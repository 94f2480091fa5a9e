"""Why an anchor is as near to a text as it is: the largest terms of the divergence by which it was ranked."""

import dataclasses
import weakref

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from knnprompt_jax import lm
from knnprompt_jax.classifier.core import Classifier
from knnprompt_jax.store import distances, placement, representations

_vocabularies: "weakref.WeakKeyDictionary[lm.LanguageModel, tuple[np.ndarray, np.ndarray]]" = (
    weakref.WeakKeyDictionary()
)


@dataclasses.dataclass(frozen=True)
class Reason:
    """A part of a divergence; all parts add up to it.

    Attributes:
      text: what follows the prompt: a label word, or what several tokens read that differ in case and blanks alone.
      nats: the sum of their terms p(v) (log p(v) − log k(v)), or with p and k in each other's place for the released direction.
      after_text, after_anchor: the probability that the model gives it after the text and after the anchor.
    """

    text: str
    nats: float
    after_text: float
    after_anchor: float

    def __str__(self) -> str:
        return f"{self.text!r} {self.nats:z.4f} ({_percent(self.after_text)} here, {_percent(self.after_anchor)} there)"


def of(classifier: Classifier, states: lm.States, places_k: np.ndarray, most: int) -> list[tuple[Reason, ...]]:
    """For each of the anchors at these places of the store, the largest parts of the divergence between a text and it.

    There are none where the distance is no divergence.

    Args:
      states: of the text, one row.
      most: how many parts.
    """
    distance, codec = distances.get(classifier.rule_.distance), classifier.store_.codec
    if not distance.direction:
        return [()] * len(places_k)
    keys = jax.tree.map(jnp.asarray, placement.take(classifier.store_.unpadded.keys, places_k))
    if distance.reads_label_words:
        logp_W, logk_kW = codec.queries(states, distance)[0], codec.references(keys, distance)
        texts = np.array(classifier.task.label_words)
        groups_W = np.arange(len(texts))
    else:
        logp_W = representations.log_probabilities(classifier.lm.head, states)[0]
        logk_kW = codec.distributions(keys)
        texts, groups_W = _vocabulary(classifier.lm)
    logs = (np.asarray(log, np.float64) for log in (logp_W, logk_kW))
    if distance.representation != "partial_raw":
        logs = (special.log_softmax(log, axis=-1) for log in logs)
    logp_W, logk_kW = logs
    return [_largest(texts, groups_W, logp_W, logk_W, distance.direction, most) for logk_W in logk_kW]


def _largest(
    texts: np.ndarray, groups_W: np.ndarray, logp_W: np.ndarray, logk_W: np.ndarray, direction: str, most: int
) -> tuple[Reason, ...]:
    """The parts of KL(p ‖ k), or of KL(k ‖ p), that are largest once the terms of a group are added up."""
    p_W, k_W = np.exp(logp_W), np.exp(logk_W)
    terms_W = p_W * (logp_W - logk_W) if direction == "forward" else k_W * (logk_W - logp_W)
    sums = [np.bincount(groups_W, each_W, len(texts)) for each_W in (terms_W, p_W, k_W)]
    order = np.argsort(-sums[0], kind="stable")[:most]
    return tuple(Reason(str(texts[at]), *(float(each[at]) for each in sums)) for at in order.tolist())


def _vocabulary(model: lm.LanguageModel) -> tuple[np.ndarray, np.ndarray]:
    """What tokens read when case and the blanks around them do not count, and which of these each token of the model is [V]."""
    if model not in _vocabularies:
        read = model.tokenizer.batch_decode([[token] for token in range(len(model.head))])
        plain = [text.strip().casefold() or text for text in read]
        _vocabularies[model] = tuple(np.unique(plain, return_inverse=True))  # type: ignore[assignment]
    return _vocabularies[model]


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
