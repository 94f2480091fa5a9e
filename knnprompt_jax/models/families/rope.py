"""Rotary positions in a config.json: the frequencies of each kind of scaling, as `transformers` computes them.

Some kinds choose their frequencies by the longest prompt of a batch (LongRoPE, dynamic NTK). They are fixed to the
frequencies of short prompts, and the context ends where the other frequencies would begin.
"""

import math
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models import config, hf_config

Parameters = dict[str, Any]
_KINDS = ("default", "linear", "dynamic", "llama3", "longrope", "su")


def parameters(
    hf: hf_config.Fields,
    theta: float,
    share: float = 1.0,
    older: tuple[str, str] = ("rope_theta", "partial_rotary_factor"),
) -> Parameters:
    """Return the scaling, its base and the share of the head that turns.

    Newer files have them in `rope_parameters`. Older files have `rope_scaling` and the two keys `older`.
    """
    default = {"rope_theta": theta, "partial_rotary_factor": share}
    separate = dict(zip(default, map(hf.value, older), strict=True))
    together = hf.table("rope_parameters") or hf.table("rope_scaling") or {}
    return default | {key: value for key, value in {**separate, **together}.items() if value is not None}


def refuse_partial(given: Parameters) -> None:
    """Raise UserError if only a part of the head turns, for families in which all of it does."""
    if (share := given.get("partial_rotary_factor") or 1.0) != 1:
        raise errors.UserError(f"config.json: partial_rotary_factor={share}: this family supports only 1.0")


def frequencies(
    given: Parameters, size: int, context: int, original: int | None = None
) -> tuple[config.Frequencies, int]:
    """Return the frequencies of a head, and the context in tokens that they support.

    Args:
        given: the result of `parameters`.
        size: the size of the head.
        context: `max_position_embeddings`.
        original: `original_max_position_embeddings`, if the file has it outside of the scaling.

    Raises:
        UserError: an unknown kind of scaling, or values that do not fit it.
    """
    fields = hf_config.Fields(given)
    kind = fields.choice("rope_type", fields.value("type", "default"), _KINDS)  # `type` is the older name.
    share = fields.number("partial_rotary_factor", 1.0)
    pairs, odd = divmod(int(size * share), 2)
    if share > 1 or odd or not pairs:
        raise errors.UserError(f"config.json: {share} of a head of {size} cannot be turned in pairs")
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
    return config.Frequencies(tuple(np.asarray(radians_r, np.float32).tolist()), scale), context


def divided(table: config.Frequencies, factors: list[float] | None) -> config.Frequencies:
    """Return the frequencies divided by `factors`, a GGUF file's `rope_freqs`; None leaves them unchanged."""
    if factors is None:
        return table
    if not isinstance(factors, list) or len(factors) != len(table.radians) or not all(f > 0 for f in factors):
        raise errors.UserError(f"rope_freqs: {len(table.radians)} positive factors are required")
    radians_r = np.asarray(table.radians, np.float32) / np.asarray(factors, np.float32)
    return config.Frequencies(tuple(radians_r.tolist()), table.scale)


def _llama3(fields: hf_config.Fields, radians_r: np.ndarray, original: int) -> np.ndarray:
    """Stretch long waves by `factor`, keep short waves, and blend the ones between (Llama 3.1)."""
    factor = fields.number("factor")
    low = fields.number("low_freq_factor")
    high = fields.number("high_freq_factor")
    if low >= high:
        raise errors.UserError(f"config.json: low_freq_factor={low} is not below high_freq_factor={high}")
    turns_r = original * radians_r / (2 * np.pi)
    kept_r = np.clip((turns_r - low) / (high - low), 0, 1)
    return radians_r * (kept_r + (1 - kept_r) / factor)


def _longrope(fields: hf_config.Fields, radians_r: np.ndarray, original: int, context: int) -> tuple[np.ndarray, float]:
    """Divide each frequency by its short factor, valid up to the original context (Ding et al., "LongRoPE", 2024)."""
    short_r = fields.value("short_factor")
    long_r = fields.value("long_factor")
    for values in (short_r, long_r):
        if not isinstance(values, list) or len(values) != len(radians_r) or not all(value > 0 for value in values):
            raise fields.wrong("short_factor, long_factor", f"they need {len(radians_r)} positive numbers each")
    factor = fields.number("factor", context / original)
    scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return radians_r / np.array(short_r), fields.number("attention_factor", scale)
