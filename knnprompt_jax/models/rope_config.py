"""What a config.json says of rotary positions: frequencies of each kind of scaling, as `transformers` computes them.

Kinds that choose their frequencies by the longest prompt of a batch (LongRoPE, dynamic NTK) are fixed to what short prompts
get, and the context ends where others would begin.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models import hf_config, rotary

Parameters = dict[str, Any]


def parameters(
    hf: hf_config.Fields,
    theta: float,
    share: float = 1.0,
    older: tuple[str, str] = ("rope_theta", "partial_rotary_factor"),
) -> Parameters:
    """The scaling, its base and its share of the head: `rope_parameters` as written today, or the `older` keys apart."""
    default = {"rope_theta": theta, "partial_rotary_factor": share}
    apart = dict(zip(default, map(hf.value, older), strict=True))
    together = hf.table("rope_parameters") or hf.table("rope_scaling") or {}
    return default | {key: value for key, value in {**apart, **together}.items() if value is not None}


def refuse_partial(given: Parameters) -> None:
    """Raises UserError where a part of the head alone shall turn, in families that turn all of it."""
    if (share := given.get("partial_rotary_factor") or 1.0) != 1:
        raise errors.UserError(f"config.json: partial_rotary_factor={share}: this family supports 1.0 alone")


def frequencies(
    given: Parameters, size: int, context: int, original: int | None = None
) -> tuple[rotary.Frequencies, int]:
    """The frequencies of heads of `size`, and the context in tokens that they serve.

    Args:
        given: what `parameters` returned.
        context: `max_position_embeddings`.
        original: `original_max_position_embeddings`, where it stands beside the scaling and not in it.

    Raises:
        UserError: an unknown kind of scaling, or values that it cannot work with.
    """
    fields = hf_config.Fields(given)
    kind = fields.choice("rope_type", fields.value("type", "default"), _KINDS)  # `type` is its older name.
    share = fields.number("partial_rotary_factor", 1.0)
    pairs, odd = divmod(int(size * share), 2)
    if share > 1 or odd or not pairs:
        raise errors.UserError(f"config.json: {share} of a head of {size} cannot be turned in pairs")
    base = fields.number("rope_theta")
    plain_r = base ** -(np.arange(pairs) / pairs)
    said = fields.size("original_max_position_embeddings", context)
    radians_r, scale, context = _KINDS[kind](fields, plain_r, base, original or said, context)
    fields.refuse_unread()
    return rotary.Frequencies(tuple(np.asarray(radians_r, np.float32).tolist()), scale), context


def divided(table: rotary.Frequencies, factors: list[float] | None) -> rotary.Frequencies:
    """Frequencies divided one by one, as a GGUF file's `rope_freqs` say; unchanged where there are none."""
    if factors is None:
        return table
    if not isinstance(factors, list) or len(factors) != len(table.radians) or not all(f > 0 for f in factors):
        raise errors.UserError(f"rope_freqs: {len(table.radians)} positive factors are needed")
    radians_r = np.asarray(table.radians, np.float32) / np.asarray(factors, np.float32)
    return rotary.Frequencies(tuple(radians_r.tolist()), table.scale)


Scaled = tuple[np.ndarray, float, int]


def _default(fields: hf_config.Fields, plain_r: np.ndarray, base: float, original: int, context: int) -> Scaled:
    return plain_r, 1.0, context


def _linear(fields: hf_config.Fields, plain_r: np.ndarray, base: float, original: int, context: int) -> Scaled:
    return plain_r / fields.number("factor"), 1.0, context


def _dynamic(fields: hf_config.Fields, plain_r: np.ndarray, base: float, original: int, context: int) -> Scaled:
    fields.number("factor")
    return plain_r, 1.0, context  # Up to `max_position_embeddings` tokens nothing is scaled.


def _llama3(fields: hf_config.Fields, plain_r: np.ndarray, base: float, original: int, context: int) -> Scaled:
    """Long waves are stretched by `factor`, short waves kept, those between blended (Llama 3.1)."""
    factor, low, high = (fields.number(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    if low >= high:
        raise errors.UserError(f"config.json: low_freq_factor={low} is not below high_freq_factor={high}")
    turns_r = original * plain_r / (2 * np.pi)
    kept_r = np.clip((turns_r - low) / (high - low), 0, 1)
    return plain_r * (kept_r + (1 - kept_r) / factor), 1.0, context


def _yarn(fields: hf_config.Fields, plain_r: np.ndarray, base: float, original: int, context: int) -> Scaled:
    """Peng et al., "YaRN", 2023: a ramp between kept and stretched frequencies, and a factor for the logits."""
    factor = fields.number("factor", context / original)
    fast, slow = fields.number("beta_fast", 32.0), fields.number("beta_slow", 1.0)
    pairs = len(plain_r)

    def pair_of(turns: float) -> float:
        return pairs * math.log(original / (turns * 2 * math.pi)) / math.log(base)

    first, last = pair_of(fast), pair_of(slow)
    if fields.switch("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    kept_r = 1 - np.clip((np.arange(pairs) - first) / (last - first or 0.001), 0, 1)
    m, m_all = fields.optional_number("mscale"), fields.optional_number("mscale_all_dim")
    scale = _magnitude(factor, m) / _magnitude(factor, m_all) if m and m_all else _magnitude(factor, 1.0)
    return plain_r * (kept_r + (1 - kept_r) / factor), fields.number("attention_factor", scale), context


def _magnitude(factor: float, times: float) -> float:
    return 0.1 * times * math.log(factor) + 1 if factor > 1 else 1.0


def _longrope(fields: hf_config.Fields, plain_r: np.ndarray, base: float, original: int, context: int) -> Scaled:
    """Ding et al., "LongRoPE", 2024: a factor for each frequency; read are the short factors, which hold up to the original context."""
    short_r, long_r = (fields.value(f"{which}_factor") for which in ("short", "long"))
    for values in (short_r, long_r):
        if not isinstance(values, list) or len(values) != len(plain_r) or not all(value > 0 for value in values):
            raise fields.wrong("short_factor, long_factor", f"they need {len(plain_r)} positive numbers each")
    factor = fields.number("factor", context / original)
    scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return plain_r / np.array(short_r), fields.number("attention_factor", scale), min(original, context)


_KINDS: dict[str, Callable[[hf_config.Fields, np.ndarray, float, int, int], Scaled]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,  # Phi-3's older name of it.
}
