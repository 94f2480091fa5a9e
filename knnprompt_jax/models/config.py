"""What describes a decoder: every family is a set of these values."""

import dataclasses
from typing import Any, Self

import jax.numpy as jnp

from knnprompt_jax import errors
from knnprompt_jax.models import rotary as rotary_lib

# Of weights and activations: float32 is the reference, bfloat16 for accelerators. With int8 the kernels of the blocks' products are
# whole numbers of 8 bits with a scale per output channel, and all else is bfloat16.
DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "int8": jnp.int8}
FLOATS = ("float32", "bfloat16")
# The values of `norm`: "layer"; "rms" scales by its weight, "rms_plus_one" by 1 + its weight (Gemma).
NORMS = ("layer", "rms", "rms_plus_one")
# Where attention and MLP are normalised: their input (by two norms, or both by the same), their output, or the sum of that and the
# residual.
BEFORE, BEFORE_BOTH, OUTPUT, AFTER = NORM_PLACES = ("before", "before_both", "output", "after")


def dtype_of(name: str) -> jnp.dtype:
    """The dtype of that name; raises UserError with the choices where it is none of `DTYPES`."""
    if name not in DTYPES:
        raise errors.UserError(f"dtype={name!r}: choose from {', '.join(DTYPES)}")
    return DTYPES[name]


def activations(dtype: jnp.dtype) -> jnp.dtype:
    """The type of activations, and of all weights but kernels, in a model of this dtype."""
    return jnp.bfloat16 if dtype == jnp.int8 else dtype


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Shapes and switches of a decoder-only transformer.

    `family` is the Hugging Face `model_type`; sizes give the axes V, D, E, L, H, G, K and F, and `num_positions` the context in
    tokens. `position_table` says whether positions are learned vectors, the first at row `position_offset`; otherwise `rotary`
    holds one or more tables of frequencies, of which layer l uses number `rotary_of_layer[l]` (all use the first if that is
    empty). `windows[l]` is how many tokens back layer l reads, itself included; 0, or no tuple, is all of them.

    `qk_norm` says whether queries and keys are normalised within each "head" (Qwen3), or across "all" heads (OLMo 2).
    `attention_scale` multiplies attention's logits, which are then capped softly at ± `attention_cap`; `logit_cap` does the
    same to the logits of the vocabulary. `embed_scale` multiplies embeddings, after it was rounded to their dtype.
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
        """A decoder whose heads share its width, with a key head per query head, where `others` does not say otherwise."""
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
        """Numbers in a hidden state: those that the head reads, with a 1 for its bias where there is a bias."""
        return self.embed_width + self.head_bias
