"""The configuration of a decoder or encoder, and how config.json is read. Every family is a set of these values.

Each value of a config.json is validated, and an unread key that may change the model is an error.

Rotary positions: pairs of numbers of queries and keys turn by an angle that grows with the position (Su et al.,
"RoFormer", 2021), in the arrangement of `transformers`: number i of a head is paired with number i + R/2 of the R that
turn. A frequency of 0 leaves its pair unchanged, so that a layer without positions is a table of zeros.

The frequencies of each kind of scaling are those of `transformers`. Some kinds choose their frequencies by the longest
prompt of a batch (LongRoPE, dynamic NTK). They are fixed to the frequencies of short prompts, and the context ends
where the other frequencies would begin.

In names of arrays, r counts the R/2 pairs, and t the tables of frequencies.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Collection, Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from knnprompt_jax.common import errors

# Where attention and MLP are normalised: their input (each by its own norm, or both by the same), their output, or the
# sum of output and residual.
BEFORE = "before"
BEFORE_BOTH = "before_both"
OUTPUT = "output"
AFTER = "after"
Array = jax.Array
Json = Mapping[str, Any]
# Keys that do not change the results of a frozen model: names, token ids, training, generation, other heads.
_HARMLESS = """
    _attn_implementation _attn_implementation_autoset _flash_attn_2_enabled _name_or_path _num_labels
    activation_dropout architectures attention_dropout attention_probs_dropout_prob attn_implementation attn_pdrop
    auto_map begin_suppress_tokens bos_token_id cache_implementation chat_template classifier_activation
    classifier_dropout directionality diversity_penalty do_sample dropout dtype early_stopping embd_pdrop
    encoder_no_repeat_ngram_size eos_token_id finetuning_task gradient_checkpointing hidden_dropout
    hidden_dropout_prob id2label init_std initializer_range is_llama_config label2id layerdrop length_penalty
    max_length max_sequence_length min_length model_type n_ctx n_special no_repeat_ngram_size num_beam_groups
    num_beams num_labels num_return_sequences pad_token_id pooler_fc_size pooler_num_attention_heads
    pooler_num_fc_layers pooler_size_per_head pooler_type predict_special_tokens prefix problem_type
    reorder_and_upcast_attn repetition_penalty resid_pdrop sep_token_id suppress_tokens task_specific_params
    temperature tokenizer_class top_k top_p torch_dtype transformers.js_config transformers_version typical_p
    unsloth_fixed unsloth_version use_cache vocab_size_or_config_json_file
"""
_HARMLESS_PREFIXES = ("summary_", "output_", "return_dict", "chunk_size_feed_forward")

# Bounds above those of any model, so that a damaged number asks for no huge amount of memory.
MAX_SIZE = 2**31 - 1
MAX_NUMBER = 1e30
_ROTARY_KINDS = ("default", "linear", "dynamic", "llama3", "longrope", "su")


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
        bidirectional: a sentence encoder, whose tokens attend in both directions; windows, too, reach both ways.
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
    bidirectional: bool = False

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


class Fields:
    """The values of a file, read by type; `refuse_unread` reports those that were not read. Null counts as absent.

    Each method raises UserError for an invalid value, with `path`, `prefix` and key in the message.
    """

    def __init__(self, values: Json, path: str = "config.json", prefix: str = ""):
        self.values = values
        self.path = path
        self.prefix = prefix
        self._read: set[str] = set()

    def value(self, key: str, default: Any = None) -> Any:
        """Return the value as it is."""
        self._read.add(key)
        value = self.values.get(key)
        return default if value is None else value

    def size(self, key: str, default: int | None = None) -> int:
        """Return a positive integer; without a default the key is required."""
        value = self._required_value(key, default)
        if type(value) is not int or not 0 < value <= MAX_SIZE:
            raise self.wrong(key, f"it is not a whole number from 1 to {MAX_SIZE:,}")
        return value

    def divisor(self, key: str, total: int, default: int | None = None) -> int:
        """Return a positive integer that divides `total`."""
        value = self.size(key, default)
        if total % value:
            raise self.wrong(key, f"it does not divide {total}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a positive number; without a default the key is required."""
        value = self._required_value(key, default)
        if not _is_positive(value):
            raise self.wrong(key, f"it is not a positive number below {MAX_NUMBER:g}")
        return float(value)

    def switch(self, key: str, default: bool) -> bool:
        value = self.value(key, default)
        if type(value) is not bool:
            raise self.wrong(key, "it is neither true nor false")
        return value

    def choice(self, key: str, default: str | None, choices: Collection[str]) -> str:
        value = self._required_value(key, default)
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(key, f"it is not supported; choices: {', '.join(sorted(choices))}")
        return value

    def require(self, key: str, supported: Any) -> None:
        """Raise UserError unless the key is absent or has the only supported value."""
        if (value := self.value(key, supported)) != supported or type(value) is not type(supported):
            raise self.wrong(key, f"it is not supported; only {key}={supported!r} is")

    def per_layer(self, key: str, layers: int, choices: Collection[Any]) -> list[Any] | None:
        """Return one of `choices` for each layer; None if the key is absent."""
        value = self.value(key)
        fits = isinstance(value, list) and len(value) == layers and all(member in choices for member in value)
        if value is not None and not fits:
            listed = ", ".join(map(str, choices))
            raise self.wrong(key, f"it is not {layers} of {listed}, one for each layer")
        return value

    def table(self, key: str) -> Json | None:
        """Return an object; None if the key is absent."""
        value = self.value(key)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(key, "it is not an object")
        return value

    def refuse_unread(self) -> None:
        """Raise UserError for keys that were not read and may change the model."""
        unread = [
            f"{self.prefix}{key}={value!r:.60}"
            for key, value in self.values.items()
            if key not in self._read and self._matters(key, value)
        ]
        if unread:
            raise errors.UserError(f"{self.path}: {', '.join(unread)}: not supported, and it may change the model")

    def wrong(self, key: str, reason: str) -> errors.UserError:
        """Return an error about a key and its value."""
        return errors.UserError(f"{self.path}: {self.prefix}{key}={self.values.get(key)!r:.60}: {reason}")

    def _matters(self, key: str, value: Any) -> bool:
        harmless = key in _HARMLESS.split() or key.startswith(_HARMLESS_PREFIXES)
        return not harmless and value is not None and value is not False and value not in ({}, [])

    def _required_value(self, key: str, default: Any) -> Any:
        if (value := self.value(key, default)) is None:
            raise self.wrong(key, "it is missing")
        return value


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < MAX_NUMBER


def read(path: pathlib.Path) -> Json:
    """Return the JSON object in a file; raise UserError if it cannot be read or holds no JSON object."""
    try:
        hf = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(hf, dict):
            raise ValueError("no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise errors.UserError(f"{path}: not readable as JSON: {error}") from None
    return hf


def rotary_parameters(
    hf: Fields, theta: float, share: float = 1.0, older: tuple[str, str] = ("rope_theta", "partial_rotary_factor")
) -> Fields:
    """Return the scaling, its base and the share of the head that turns.

    Newer files have them in `rope_parameters`. Older files have `rope_scaling` and the two keys `older`.
    """
    default = {"rope_theta": theta, "partial_rotary_factor": share}
    separate = dict(zip(default, map(hf.value, older), strict=True))
    together = hf.table("rope_parameters") or hf.table("rope_scaling") or {}
    given = {key: value for key, value in {**separate, **together}.items() if value is not None}
    return Fields(default | given, hf.path)


def refuse_partial_rotation(given: Fields) -> None:
    """Raise UserError if rotary embedding covers only a part of the head, for families in which it covers all of it."""
    if given.value("partial_rotary_factor", 1) != 1:
        raise given.wrong("partial_rotary_factor", "this family supports only 1")


def rotary_frequencies(fields: Fields, size: int, context: int, original: int | None = None) -> tuple[Frequencies, int]:
    """Return the frequencies of a head, and the context in tokens that they support.

    Args:
        fields: the result of `rotary_parameters`.
        size: the size of the head.
        context: `max_position_embeddings`.
        original: `original_max_position_embeddings`, if the file has it outside of the scaling.

    Raises:
        UserError: an unknown kind of scaling, or values that do not fit it.
    """
    kind = fields.choice("rope_type", fields.value("type", "default"), _ROTARY_KINDS)  # `type` is the older name.
    share = fields.number("partial_rotary_factor", 1.0)
    pairs, odd = divmod(int(size * share), 2)
    if share > 1 or odd or not pairs:
        raise fields.wrong("partial_rotary_factor", f"rotary embedding needs an even part of a head of {size}")
    stored_original = fields.size("original_max_position_embeddings", context)
    original = original or stored_original
    radians_r = fields.number("rope_theta") ** -(np.arange(pairs) / pairs)
    scale = 1.0
    if kind == "linear":
        radians_r = radians_r / fields.number("factor")
    elif kind == "dynamic":
        fields.number("factor")  # Up to `max_position_embeddings` tokens nothing is scaled.
    elif kind == "llama3":
        radians_r = _llama3(fields, radians_r, original)
    elif kind in ("longrope", "su"):  # Phi-3 first called it "su".
        radians_r, scale = _longrope(fields, radians_r, original, context)
        context = min(original, context)
    fields.refuse_unread()
    return Frequencies(tuple(np.asarray(radians_r, np.float32).tolist()), scale), context


def _llama3(fields: Fields, radians_r: np.ndarray, original: int) -> np.ndarray:
    """Stretch long waves by `factor`, keep short waves, and blend the ones between (Llama 3.1)."""
    factor = fields.number("factor")
    low = fields.number("low_freq_factor")
    high = fields.number("high_freq_factor")
    if low >= high:
        raise fields.wrong("low_freq_factor", f"it is not below high_freq_factor={high}")
    turns_r = original * radians_r / (2 * np.pi)
    kept_r = np.clip((turns_r - low) / (high - low), 0, 1)
    return radians_r * (kept_r + (1 - kept_r) / factor)


def _longrope(fields: Fields, radians_r: np.ndarray, original: int, context: int) -> tuple[np.ndarray, float]:
    """Divide each frequency by its short factor, valid up to the original context (Ding et al., "LongRoPE", 2024)."""
    for key in ("short_factor", "long_factor"):
        factors = fields.value(key)
        if not isinstance(factors, list) or len(factors) != len(radians_r) or not all(map(_is_positive, factors)):
            raise fields.wrong(key, f"it is not {len(radians_r)} positive numbers")
    if original < 2:
        raise errors.UserError(f"{fields.path}: original_max_position_embeddings={original}: LongRoPE needs at least 2")
    factor = fields.number("factor", context / original)
    scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return radians_r / np.array(fields.value("short_factor")), fields.number("attention_factor", scale)
