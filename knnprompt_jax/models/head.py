"""The head: from a hidden state to next-token logits, and to the log-probabilities of given tokens."""

import jax
import jax.numpy as jnp
from flax import struct

Array = jax.Array
TILE = 4096  # Tokens of the vocabulary whose logits exist at once, where log-probabilities are asked for.


@struct.dataclass
class Head:
    """Row v of `rows_VE` gives token v's logit as an inner product with a hidden state.

    Where `cap` is a number (Gemma 2), a logit is cap · tanh(inner product / cap). Then it is no linear function of the state,
    and divergences are no inner products.
    """

    rows_VE: Array
    cap: float | None = struct.field(pytree_node=False, default=None)

    def __len__(self) -> int:
        """The number of tokens V."""
        return len(self.rows_VE)

    def logits(self, h_NE: Array) -> Array:
        """Logits [..., V] in float32 of states [..., E]."""
        products = jnp.einsum("...e,ve->...v", h_NE.astype(jnp.float32), self.rows_VE.astype(jnp.float32))
        return soft_cap(products, self.cap)

    def take(self, tokens: Array) -> "Head":
        """The head of some tokens alone."""
        return self.replace(rows_VE=self.rows_VE[tokens])  # type: ignore[attr-defined]

    def log_probabilities(self, h_JE: Array, tokens_J: Array, tile: int = TILE) -> Array:
        """log p [J] in nats, float32, of one token after each state; it takes memory for J · `tile` logits, whatever V.

        A running maximum and the sum of exponentials below it give the partition function exactly (Milakov and Gimelshein,
        "Online normalizer calculation for softmax", 2018).
        """
        vocabulary = len(self)
        tile = min(tile, vocabulary)

        def body(number: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            top_J, total_J, chosen_J = carry
            start = jnp.minimum(number * tile, vocabulary - tile)  # The last tile overlaps the one before it.
            rows_tE = jax.lax.dynamic_slice_in_dim(self.rows_VE, start, tile)
            logits_Jt = Head(rows_tE, self.cap).logits(h_JE)
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


def soft_cap(logits: Array, cap: float | None) -> Array:
    """Logits drawn smoothly into ± cap; unchanged where there is none."""
    return logits if cap is None else cap * jnp.tanh(logits / cap)
