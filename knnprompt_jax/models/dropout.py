"""Dropout, for fine-tuning alone: random zeros that depend on nothing but a key, so that a restart draws them again."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

Array = jax.Array
# The places within a block: attention weights, what attention read, and the MLP's output.
WEIGHTS, READ, MLP = range(3)


@struct.dataclass
class Dropout:
    """Zeros each number with probability `rate` and scales the others so that means stay; at rate 0 it changes nothing."""

    key: Any  # A random key; None only where the rate is 0.
    rate: float = struct.field(pytree_node=False)

    def at(self, place: Array | int) -> "Dropout":
        """The same dropout with other draws, for a layer or a place within it."""
        return dataclasses.replace(self, key=jax.random.fold_in(self.key, place)) if self.rate else self

    def __call__(self, x: Array) -> Array:
        if not self.rate:
            return x
        kept = jax.random.bernoulli(self.key, 1 - self.rate, x.shape)
        return jnp.where(kept, x / (1 - self.rate), 0).astype(x.dtype)


OFF = Dropout(None, 0.0)
