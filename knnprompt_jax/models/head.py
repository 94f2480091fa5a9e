"""The head: from a hidden state to the next-token logits."""

import jax
import jax.numpy as jnp
from flax import struct

Array = jax.Array


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
        return self.capped(jnp.einsum("...e,ve->...v", h_NE.astype(jnp.float32), self.rows_VE.astype(jnp.float32)))

    def take(self, tokens: Array) -> "Head":
        """The head of some tokens alone."""
        return self.replace(rows_VE=self.rows_VE[tokens])  # type: ignore[attr-defined]

    def capped(self, logits: Array) -> Array:
        return soft_cap(logits, self.cap)


def soft_cap(logits: Array, cap: float | None) -> Array:
    """Logits drawn smoothly into ± cap; unchanged where there is none."""
    return logits if cap is None else cap * jnp.tanh(logits / cap)
