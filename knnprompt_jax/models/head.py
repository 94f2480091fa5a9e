"""States, and the head that maps them to next-token logits: the sufficient statistics of a next-token distribution."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax.common import parallel

Array = jax.Array
TILE = 4096  # Tokens of the vocabulary whose logits exist at once in `log_probabilities`.


@dataclasses.dataclass(frozen=True, order=True)
class Activation:
    """An activation of a prompt: the output of a block, from 1, at the last token, or its mean over the own tokens.

    A prompt's own tokens are those after the demonstrations; a truncated prompt has no others.
    """

    block: int
    is_mean: bool = False


@struct.dataclass
class States:
    """The head's input `hidden_NE` and the log-partition `log_z_N` (nats) of N prompts, both float32.

    log p(v) = w_v · h − log Z, where w_v are the rows of the head. A pass leaves its rows split over the devices of the
    mesh if they divide evenly; a selection of rows is whole on every device. With `deterministic`, no state depends on
    the other prompts of its pass, and a store of these states must search deterministically. `activations` has
    the requested ones [N, D] (float32).
    """

    hidden_NE: Array
    log_z_N: Array
    deterministic: bool = struct.field(pytree_node=False, default=False)
    activations: Mapping[Activation, Array] = struct.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.log_z_N)

    def without_activations(self) -> "States":
        """Return the states without the activations."""
        return self.replace(activations={})  # type: ignore[attr-defined]

    def take_replicated(self, rows: Any) -> "States":
        """Return some rows, whole on every device."""
        return parallel.replicate(jax.tree.map(lambda array: array[rows], self))


@struct.dataclass
class Head:
    """The rows of the output layer: token v's logit is the inner product of row v with a hidden state."""

    rows_VE: Array

    def __len__(self) -> int:
        """The number of tokens V."""
        return len(self.rows_VE)

    def logits(self, h_NE: Array) -> Array:
        """Return the logits [..., V] (float32) of states [..., E]."""
        return _products(h_NE.astype(jnp.float32), self.rows_VE, parallel.platform())

    def take(self, tokens: Array) -> "Head":
        """Return the head of some tokens."""
        return self.replace(rows_VE=self.rows_VE[tokens])  # type: ignore[attr-defined]

    def log_probabilities(self, h_JE: Array, tokens_J: Array, tile: int = TILE) -> tuple[Array, Array]:
        """Return log p [J] (nats, float32) of one token after each state, and whether no token is likelier [J].

        The memory is that of J · `tile` logits, independent of V. A running maximum and the sum of exponentials below
        it give the partition function exactly (Milakov and Gimelshein, "Online normalizer calculation for softmax",
        2018).
        """
        vocabulary = len(self)
        tile = min(tile, vocabulary)

        def body(number: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            top_J, total_J, chosen_J = carry
            start = jnp.minimum(number * tile, vocabulary - tile)  # The last tile overlaps the one before it.
            rows_tE = jax.lax.dynamic_slice_in_dim(self.rows_VE, start, tile)
            logits_Jt = Head(rows_tE).logits(h_JE)
            column_t = start + jnp.arange(tile)
            logits_Jt = jnp.where(column_t >= number * tile, logits_Jt, -jnp.inf)
            new_top_J = jnp.maximum(top_J, logits_Jt.max(-1))
            total_J = total_J * jnp.exp(top_J - new_top_J) + jnp.exp(logits_Jt - new_top_J[:, None]).sum(-1)
            is_chosen_Jt = (column_t == tokens_J[:, None]) & (column_t >= number * tile)
            return new_top_J, total_J, chosen_J + jnp.where(is_chosen_Jt, logits_Jt, 0).sum(-1)

        zeros_J = jnp.zeros(len(h_JE), jnp.float32)
        carry = (zeros_J - jnp.inf, zeros_J, zeros_J)
        top_J, total_J, chosen_J = jax.lax.fori_loop(0, -(-vocabulary // tile), body, carry)
        return chosen_J - top_J - jnp.log(total_J), chosen_J == top_J


def _products(h_NE: Array, rows_VE: Array, platform: str) -> Array:
    """Return inner products [..., V] in float32.

    TPUs compute a float32 product as six products in bfloat16. For rows in bfloat16 two are enough: one with
    the rounded states, one with the remainder of rounding. With SmolLM2's head, divergences change by at most 9e-5
    nats; with only the first product, by 0.07.
    """
    equation = "...e,ve->...v"
    if platform == "cpu" or rows_VE.dtype != jnp.bfloat16:
        return jnp.einsum(equation, h_NE, rows_VE.astype(jnp.float32))
    rounded_NE = jax.lax.reduce_precision(h_NE, 8, 7)  # A compiler may remove a pair of casts.
    exact = {"precision": jax.lax.Precision.DEFAULT, "preferred_element_type": jnp.float32}
    coarse_NV = jnp.einsum(equation, rounded_NE.astype(jnp.bfloat16), rows_VE, **exact)
    fine_NV = jnp.einsum(equation, (h_NE - rounded_NE).astype(jnp.bfloat16), rows_VE, **exact)
    return coarse_NV + fine_NV
