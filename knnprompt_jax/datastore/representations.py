"""Representations of prompts that distances compare: functions of a prompt's state and the head."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from knnprompt_jax.datastore import rowwise
from knnprompt_jax.datastore.distances import Representation
from knnprompt_jax.inference import lm
from knnprompt_jax.models import head as head_lib

Array = jax.Array


def represent(
    head: head_lib.Head,
    states: lm.States,
    representation: Representation,
    label_tokens: Sequence[int],
    then: Callable[[Array], Any] = lambda row_W: row_W,
) -> Any:
    """Return `then(row_W)` of the representation of each prompt, float32."""
    options = representation, tuple(label_tokens), then
    return rowwise.map_rows(_represent, head, states, *options, rows_per_tile=rowwise.ROWS_PER_TILE_OF_LOGITS)


def log_probabilities(head: head_lib.Head, states: lm.States) -> Array:
    """Return log p [N, V] in nats, normalised to float32's last digit; only the result has size N · V."""
    return represent(head, states, Representation.DISTRIBUTION, ())


def label_log_probabilities(head: head_lib.Head, states: lm.States, label_tokens: Sequence[int]) -> Array:
    """Return log p of the label words, [N, C] in nats."""
    return rowwise.map_rows(_label_log_probabilities, head, states, tuple(label_tokens))


def _represent(
    head: head_lib.Head,
    state: lm.States,
    representation: Representation,
    label_tokens: tuple[int, ...],
    then: Callable[[Array], Any],
) -> Any:
    """Return `then` of a row's representation.

    `state`, here and below, is a single row of `map_rows`: its `hidden_NE` is [E], and its `log_z_N` a scalar.
    """
    if representation is Representation.HIDDEN:
        return then(state.hidden_NE)
    if representation is Representation.LABEL_WORDS:
        return then(jax.nn.log_softmax(_label_log_probabilities(head, state, label_tokens)))
    return then(_log_probabilities(head, state))


def _log_probabilities(head: head_lib.Head, state: lm.States) -> Array:
    logp_V = head.logits(state.hidden_NE) - state.log_z_N
    return logp_V - jax.nn.logsumexp(logp_V)


def _label_log_probabilities(head: head_lib.Head, state: lm.States, label_tokens: tuple[int, ...]) -> Array:
    return head.take(jnp.array(label_tokens)).logits(state.hidden_NE) - state.log_z_N
