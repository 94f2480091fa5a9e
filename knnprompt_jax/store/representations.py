"""Representations that distances compare: functions of a prompt's state and the head."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from knnprompt_jax import lm
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import placement

Array = jax.Array
OF_LABEL_WORDS = ("partial", "partial_raw")
NORMALISED = ("distribution", "partial")


def represent(head: head_lib.Head, states: lm.States, representation: str, label_ids: Sequence[int]) -> Array:
    """Return one row per prompt, float32.

    - "distribution": log-probabilities of all V tokens, the paper's method;
    - "partial": log-probabilities of the C label words, renormalised over them; "partial_raw": not renormalised;
    - "hidden": the hidden state [E] after the last normalisation.
    """
    if representation == "distribution":
        return log_probabilities(head, states)
    if representation == "hidden":
        return states.hidden_NE
    return of_label_words(label_log_probabilities(head, states, label_ids), representation)


def of_label_words(logp_NC: Array, representation: str) -> Array:
    """Return "partial" or "partial_raw", given log-probabilities of the label words that are not renormalised."""
    return jax.nn.log_softmax(logp_NC) if representation == "partial" else logp_NC


def log_probabilities(head: head_lib.Head, states: lm.States) -> Array:
    """Return log p [N, V] in nats, normalised to float32's last digit; only the result has size N · V."""
    return placement.map_rows(_log_probabilities, head, states)


def label_log_probabilities(head: head_lib.Head, states: lm.States, label_ids: Sequence[int]) -> Array:
    """Return log p of the label words, [N, C] in nats."""
    return placement.map_rows(_label_log_probabilities, head, states, tuple(label_ids))


def _log_probabilities(head: head_lib.Head, state: lm.States) -> Array:
    logits_V = head.logits(state.hidden_NE) - state.log_z_N
    return logits_V - jax.nn.logsumexp(logits_V)


def _label_log_probabilities(head: head_lib.Head, state: lm.States, label_ids: tuple[int, ...]) -> Array:
    return head.take(jnp.array(label_ids)).logits(state.hidden_NE) - state.log_z_N
