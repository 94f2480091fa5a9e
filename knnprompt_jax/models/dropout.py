"""Dropout for fine-tuning. The random zeros depend only on a key, so that a restart draws the same ones."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

Array = jax.Array
# Places within a block: attention weights, the output of attention, and the output of the MLP.
WEIGHTS, READ, MLP = range(3)


@struct.dataclass
class Dropout:
    """Zero each number with probability `rate` and scale the others so that means stay the same. Rate 0 changes nothing."""

    key: Any  # A random key; None only if the rate is 0.
    rate: float = struct.field(pytree_node=False)

    def at(self, place: Array | int) -> "Dropout":
        """Return the same dropout with other draws, for a layer or a place within it."""
        return dataclasses.replace(self, key=jax.random.fold_in(self.key, place)) if self.rate else self

    def __call__(self, x: Array) -> Array:
        if not self.rate:
            return x
        kept = jax.random.bernoulli(self.key, 1 - self.rate, x.shape)
        return jnp.where(kept, x / (1 - self.rate), 0).astype(x.dtype)


OFF = Dropout(None, 0.0)
