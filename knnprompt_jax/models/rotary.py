"""Rotary positions: pairs of numbers of queries and keys turn by an angle that grows with the position.

Su et al., "RoFormer", 2021, in the arrangement of `transformers`: number i of a head is paired with number i + R/2 of the R
that turn. A frequency of 0 leaves its pair unchanged, so that a layer without positions is a table of zeros.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Frequencies:
    """Radians per position of each of R/2 pairs. `scale` multiplies the turned numbers (YaRN, LongRoPE)."""

    radians: tuple[float, ...]
    scale: float = 1.0


@struct.dataclass
class Rotation:
    """Cosines and sines [B, S, R/2] (float32) of the angles of tokens."""

    cos_BSr: Array
    sin_BSr: Array

    def __call__(self, x_BSHK: Array) -> Array:
        """Turn the first R numbers of each head; leave the others unchanged."""
        pairs = self.cos_BSr.shape[-1]
        x_BSHr, y_BSHr = (x_BSHK[..., part * pairs : (part + 1) * pairs].astype(jnp.float32) for part in (0, 1))
        cos_BS1r, sin_BS1r = self.cos_BSr[:, :, None], self.sin_BSr[:, :, None]
        turned = [x_BSHr * cos_BS1r - y_BSHr * sin_BS1r, y_BSHr * cos_BS1r + x_BSHr * sin_BS1r]
        return jnp.concatenate([*(part.astype(x_BSHK.dtype) for part in turned), x_BSHK[..., 2 * pairs :]], -1)

    def at(self, tokens_J: Array) -> "Rotation":
        """Return the rotation [1, J, R/2] of the tokens at flat indices into [B, S]."""
        return jax.tree.map(lambda array: array.reshape(1, -1, array.shape[-1])[:, tokens_J], self)


def rotations(tables: tuple[Frequencies, ...], positions_BS: Array) -> Rotation:
    """Return the rotations of every table, with a leading axis for the tables."""
    radians_tr = np.array([table.radians for table in tables], np.float32)
    scale_t = jnp.array([table.scale for table in tables], jnp.float32)[:, None, None, None]
    angles_tBSr = positions_BS[..., None].astype(jnp.float32) * radians_tr[:, None, None]
    return Rotation(scale_t * jnp.cos(angles_tBSr), scale_t * jnp.sin(angles_tBSr))
