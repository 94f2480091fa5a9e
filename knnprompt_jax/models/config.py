"""The configuration of a decoder. Every family is a set of these values."""

import dataclasses
from typing import Any, Self

import jax.numpy as jnp

from knnprompt_jax import errors
from knnprompt_jax.models import rotary as rotary_lib

# The dtype of weights and activations: float32 is the reference, bfloat16 is for accelerators. With int8 the kernels of the blocks
# are int8 with a scale per output channel, and everything else is bfloat16.
DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "int8": jnp.int8}
# Where attention and MLP are normalised: their input (each by its own norm, or both by the same), their output, or the sum of output
# and residual.
BEFORE, BEFORE_BOTH, OUTPUT, AFTER = ("before", "before_both", "output", "after")


def dtype_of(name: str) -> jnp.dtype:
    """Return the dtype called `name`. Raises UserError for a name that is not in `DTYPES`."""
    if name not in DTYPES:
        raise errors.UserError(f"dtype={name!r}: choose from {', '.join(DTYPES)}")
    return DTYPES[name]


def activations(dtype: jnp.dtype) -> jnp.dtype:
    """Return the dtype of activations, and of all weights but kernels, in a model of dtype `dtype`."""
    return jnp.bfloat16 if dtype == jnp.int8 else dtype


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Shapes and switches of a decoder-only transformer.

    Attributes:
        family: the Hugging Face `model_type`.
        num_positions: the context in tokens.
        attention_scale: the factor of attention's logits.
        position_table: whether positions are learned vectors; position 0 is at row `position_offset`. Otherwise see `rotary`.
        rotary: one or more tables of rotary frequencies.
        rotary_of_layer: the number of each layer's table; empty if all layers use the first.
        windows: for each layer, how many tokens back it attends, itself included; 0, or an empty tuple, for all of them.
        norm: "layer", "rms" (scaled by its weight) or "rms_plus_one" (scaled by 1 + its weight, as in Gemma).
        norm_places: where a block normalises: `BEFORE`, `BEFORE_BOTH`, `OUTPUT`, `AFTER`.
        qk_norm: normalise queries and keys within each "head" (Qwen3) or across "all" heads (OLMo 2).
        scale_by_layer: divide attention's logits by the layer's number, counted from 1.
        embed_scale: the factor of embeddings, rounded to their dtype.
        attention_cap, logit_cap: soft caps, ±, of the logits of attention and of the vocabulary.
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
    rotary: tuple[rotary_lib.Frequencies, ...] = ()
    rotary_of_layer: tuple[int, ...] = ()
    windows: tuple[int, ...] = ()
    activation: str = "gelu_new"
    gated_mlp: bool = False
    parallel_residual: bool = False
    norm: str = "layer"
    norm_places: tuple[str, ...] = (BEFORE,)
    norm_epsilon: float = 1e-5
    final_norm: bool = True
    qk_norm: str = ""
    qkv_bias: bool = True
    out_bias: bool = True
    mlp_bias: bool = True
    head_bias: bool = False
    scale_by_layer: bool = False
    embed_scale: float = 1.0
    attention_cap: float | None = None
    logit_cap: float | None = None
    tied_head: bool = True

    @classmethod
    def of_equal_heads(cls, *, width: int, num_heads: int, **others: Any) -> Self:
        """Return a configuration whose heads share the width, with one key head per query head unless `others` says otherwise."""
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
        }

    @property
    def has_projections(self) -> bool:
        """Whether embeddings are narrower than the blocks (OPT-350m)."""
        return self.embed_width != self.width

    @property
    def state_width(self) -> int:
        """The size of a hidden state as the head reads it, including the 1 that a head's bias needs."""
        return self.embed_width + self.head_bias
