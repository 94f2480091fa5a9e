"""Log-probabilities of given tokens, the vocabulary taken a tile at a time."""

import jax
import jax.numpy as jnp

from knnprompt_jax.models import head as head_lib

Array = jax.Array
TILE = 4096  # Tokens of the vocabulary whose logits exist at once.


def log_probabilities(h_JE: Array, head: head_lib.Head, tokens_J: Array, tile: int = TILE) -> Array:
    """log p [J] in nats, float32, of one token after each state; it takes memory for J · `tile` logits, whatever V.

    A running maximum and the sum of exponentials below it give the partition function exactly (Milakov and Gimelshein,
    "Online normalizer calculation for softmax", 2018).
    """
    vocabulary = len(head)
    tile = min(tile, vocabulary)

    def body(number: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        top_J, total_J, chosen_J = carry
        start = jnp.minimum(number * tile, vocabulary - tile)  # The last tile overlaps the one before it.
        rows_tE = jax.lax.dynamic_slice_in_dim(head.rows_VE, start, tile)
        logits_Jt = head_lib.Head(rows_tE, head.cap).logits(h_JE)
        column_t = start + jnp.arange(tile)
        logits_Jt = jnp.where(column_t >= number * tile, logits_Jt, -jnp.inf)
        new_top_J = jnp.maximum(top_J, logits_Jt.max(-1))
        total_J = total_J * jnp.exp(top_J - new_top_J) + jnp.exp(logits_Jt - new_top_J[:, None]).sum(-1)
        is_chosen_Jt = (column_t == tokens_J[:, None]) & (column_t >= number * tile)
        return new_top_J, total_J, chosen_J + jnp.where(is_chosen_Jt, logits_Jt, 0).sum(-1)

    zeros_J = jnp.zeros(len(h_JE), jnp.float32)
    carry = (zeros_J - jnp.inf, zeros_J, zeros_J)
    top_J, total_J, chosen_J = jax.lax.fori_loop(0, -(-vocabulary // tile), body, carry)
    return chosen_J - top_J - jnp.log(total_J)
