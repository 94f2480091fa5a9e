"""The configuration of a decoder or encoder. Every family is a set of these values.

Rotary positions: pairs of numbers of queries and keys turn by an angle that grows with the position (Su et al.,
"RoFormer", 2021), in the arrangement of `transformers`: number i of a head is paired with number i + R/2 of the R that
turn. A frequency of 0 leaves its pair unchanged, so that a layer without positions is a table of zeros.

In names of arrays, r counts the R/2 pairs, and t the tables of frequencies.
"""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

# Where attention and MLP are normalised: their input (each by its own norm, or both by the same), their output, or the
# sum of output and residual.
BEFORE = "before"
BEFORE_BOTH = "before_both"
OUTPUT = "output"
AFTER = "after"
Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Frequencies:
    """Radians per position of each of R/2 pairs. `scale` multiplies the turned numbers (LongRoPE)."""

    radians: tuple[float, ...]
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Shapes and switches of a transformer: a decoder, or BERT's encoder.

    Attributes:
        family: the Hugging Face `model_type`.
        num_positions: the context in tokens.
        attention_scale: the factor of attention's logits.
        position_table: whether positions are learned vectors; position 0 is at row `position_offset`. Otherwise see
            `rotary`.
        rotary: one or more tables of rotary frequencies.
        layer_rotary: the number of each layer's table; empty if all layers use the first.
        windows: for each layer, how many tokens back it attends, itself included; 0, or an empty tuple, for all of
            them.
        norm: "layer", "rms" (scaled by its weight) or "rms_plus_one" (scaled by 1 + its weight, as in Gemma).
        norm_positions: where a block normalises: `BEFORE`, `BEFORE_BOTH`, `OUTPUT`, `AFTER`.
        qk_norm: normalise queries and keys within each "head" (Qwen3) or across "all" heads (OLMo 2).
        embed_scale: the factor of embeddings, rounded to their dtype.
        num_types: BERT's token types, the numbers of texts in a sequence.
    """

    family: str
    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    mlp_width: int
    num_positions: int
    embed_width: int
    attention_scale: float
    position_table: bool = True
    position_offset: int = 0
    rotary: tuple[Frequencies, ...] = ()
    layer_rotary: tuple[int, ...] = ()
    windows: tuple[int, ...] = ()
    activation: str = "gelu_new"
    gated_mlp: bool = False
    parallel_residual: bool = False
    norm: str = "layer"
    norm_positions: tuple[str, ...] = (BEFORE,)
    norm_epsilon: float = 1e-5
    final_norm: bool = True
    qk_norm: str = ""
    qkv_bias: bool = True
    out_bias: bool = True
    mlp_bias: bool = True
    head_bias: bool = False
    embed_scale: float = 1.0
    tied_head: bool = True
    num_types: int = 0

    @classmethod
    def with_equal_heads(cls, *, width: int, num_heads: int, **others: Any) -> Self:
        """Return a configuration whose heads share the width; `others` may override the number of key heads."""
        size = width // num_heads
        usual = {"num_kv_heads": num_heads, "head_size": size, "embed_width": width, "attention_scale": size**-0.5}
        return cls(width=width, num_heads=num_heads, **usual | others)

    @property
    def axes(self) -> dict[str, int]:
        """The sizes of the axes that conversion tables name."""
        return {
            "v": self.vocab_size,
            "m": self.num_positions + self.position_offset,
            "e": self.embed_width,
            "d": self.width,
            "h": self.num_heads,
            "g": self.num_kv_heads,
            "k": self.head_size,
            "f": self.mlp_width,
            "t": self.num_types,
        }

    @property
    def has_projections(self) -> bool:
        """Whether embeddings are narrower than the blocks (OPT-350m)."""
        return self.embed_width != self.width

    @property
    def state_width(self) -> int:
        """The size of a hidden state as the head reads it, including the 1 that a head's bias needs."""
        return self.embed_width + self.head_bias


@struct.dataclass
class Rotation:
    """Cosines and sines [B, S, R/2] (float32) of the angles of tokens."""

    cos_BSr: Array
    sin_BSr: Array

    def __call__(self, x_BSHK: Array) -> Array:
        """Turn the first R numbers of each head; leave the others unchanged."""
        pairs = self.cos_BSr.shape[-1]
        x_BSHr = x_BSHK[..., :pairs].astype(jnp.float32)
        y_BSHr = x_BSHK[..., pairs : 2 * pairs].astype(jnp.float32)
        cos_BS1r = self.cos_BSr[:, :, None]
        sin_BS1r = self.sin_BSr[:, :, None]
        turned = [x_BSHr * cos_BS1r - y_BSHr * sin_BS1r, y_BSHr * cos_BS1r + x_BSHr * sin_BS1r]
        return jnp.concatenate([*(part.astype(x_BSHK.dtype) for part in turned), x_BSHK[..., 2 * pairs :]], -1)


def rotations(tables: tuple[Frequencies, ...], positions_BS: Array) -> Rotation:
    """Return the rotations of every table, with a leading axis for the tables."""
    radians_tr = np.array([table.radians for table in tables], np.float32)
    scale_t = jnp.array([table.scale for table in tables], jnp.float32)[:, None, None, None]
    angles_tBSr = positions_BS[..., None].astype(jnp.float32) * radians_tr[:, None, None]
    return Rotation(scale_t * jnp.cos(angles_tBSr), scale_t * jnp.sin(angles_tBSr))
