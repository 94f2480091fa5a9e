"""Turn the rotary positions of a GGUF file into the keys of config.json."""

import math
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import header as gguf_header
from knnprompt_jax.models.gguf import tensors as gguf_tensors

DEFAULT_THETA = 10_000.0  # llama.cpp's.
_TYPES = ("none", "linear", "yarn", "longrope")


def scaling(fields: gguf_header.Fields) -> dict[str, Any]:
    """Return `rope_scaling`, or `rope_factors` by which each frequency is divided (Llama 3.1), or an empty dictionary.

    Raises:
        UserError: an unknown kind of scaling, or both kinds at once.
    """
    factors = _factors(fields, "rope_freqs.weight")
    rope_scaling = _scaling_by_type(fields)
    if factors and rope_scaling:
        raise fields.wrong("rope.scaling.type", f"{rope_scaling['rope_type']}, though the file has rope_freqs too")
    if factors:
        return {"rope_factors": factors}
    return {"rope_scaling": rope_scaling} if rope_scaling else {}


def longrope(fields: gguf_header.Fields) -> dict[str, Any]:
    """Return the keys of Phi-3, whose files have both sets of factors as tensors, or neither."""
    fields.choice("rope.scaling.type", "longrope", ("none", "longrope"))
    context = fields.size("context_length")
    original = fields.size("rope.scaling.original_context_length", context)
    attention = fields.number("rope.scaling.attn_factor", 1.0)
    short, long = (_factors(fields, f"rope_factors_{which}.weight") for which in ("short", "long"))
    if not short or not long:
        if short or long or attention != 1:
            raise errors.UserError(f"{fields.header.file}: rope_factors_short and rope_factors_long are both needed")
        return {"original_max_position_embeddings": original}
    keys: dict[str, Any] = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    scale = context / original
    usual = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
    if not math.isclose(attention, usual, rel_tol=1e-6):  # Rounded to float32 in the file.
        keys["attention_factor"] = attention
    context_keys = {"original_max_position_embeddings": original}
    return {**context_keys, "rope_scaling": keys | context_keys}


def share(fields: gguf_header.Fields, head: int) -> float:
    """Return the rotated part of each head, such that `int(head * share)` is the number of values in the file."""
    rotated = fields.size("rope.dimension_count", head)
    if rotated > head:
        raise fields.wrong("rope.dimension_count", f"{rotated} values of a head of {head}")
    part = rotated / head
    return part if int(head * part) == rotated else math.nextafter(part, 1)


def _scaling_by_type(fields: gguf_header.Fields) -> dict[str, Any] | None:
    """Read the scaling as llama.cpp does: linear without a type; older files call the factor `rope.scale_linear`."""
    kind = fields.choice("rope.scaling.type", "linear", _TYPES)
    older, newer = fields.value("rope.scale_linear"), fields.value("rope.scaling.factor")
    factor = fields.number("rope.scaling.factor" if newer else "rope.scale_linear", 1.0) if newer or older else 1.0
    original = fields.size("rope.scaling.original_context_length", fields.size("context_length"))
    if kind == "longrope":
        raise fields.wrong("rope.scaling.type", "longrope is supported for the architecture phi3 alone")
    if kind == "none" or factor == 1:
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    keys: dict[str, Any] = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    names = {"yarn_attn_factor": "attention_factor", "yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
    for key, name in names.items():
        if fields.value(f"rope.scaling.{key}") is not None:
            keys[name] = fields.number(f"rope.scaling.{key}")
    if fields.number("rope.scaling.yarn_ext_factor", 1.0) != 1:
        raise fields.wrong("rope.scaling.yarn_ext_factor", "only 1 is supported")
    return keys


def _factors(fields: gguf_header.Fields, name: str) -> list[float]:
    """Return the numbers of a tensor; an empty list if the file does not have it."""
    entry = fields.header.tensors.get(name)
    if entry is None:
        return []
    gguf_tensors.dtype(fields.header, entry)
    values = gguf_tensors.numbers(fields.header, entry).astype(np.float32).reshape(-1)
    if not (np.isfinite(values) & (values > 0)).all():
        raise errors.UserError(f"{fields.header.file}: {name} holds numbers that are not positive")
    return [float(str(value)) for value in values]
