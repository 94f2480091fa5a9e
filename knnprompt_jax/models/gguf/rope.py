"""What a GGUF file says of rotary positions, in the keys of config.json."""

import math
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import fields as gguf_fields
from knnprompt_jax.models.gguf import tensors as gguf_tensors

# As llama.cpp has it where a file says nothing.
DEFAULT_THETA = 10_000.0
_TYPES = ("none", "linear", "yarn", "longrope")


def scaling(fields: gguf_fields.Fields) -> dict[str, Any]:
    """`rope_scaling`, or `rope_factors` by which every frequency is divided (Llama 3.1); an empty dictionary if neither.

    Raises:
        UserError: a kind of scaling that is unknown, or both of them.
    """
    factors = _factors(fields, "rope_freqs.weight")
    rope_scaling = _by_type(fields)
    if factors and rope_scaling:
        raise fields.wrong("rope.scaling.type", f"{rope_scaling['rope_type']}, though the file has rope_freqs too")
    if factors:
        return {"rope_factors": factors}
    return {"rope_scaling": rope_scaling} if rope_scaling else {}


def longrope(fields: gguf_fields.Fields) -> dict[str, Any]:
    """The keys of Phi-3, whose files hold the two sets of factors as tensors, or none of them."""
    fields.choice("rope.scaling.type", "longrope", ("none", "longrope"))
    context = fields.size("context_length")
    original = fields.size("rope.scaling.original_context_length", context)
    said = fields.number("rope.scaling.attn_factor", 1.0)
    short, long = (_factors(fields, f"rope_factors_{which}.weight") for which in ("short", "long"))
    if not short or not long:
        if short or long or said != 1:
            raise errors.UserError(f"{fields.header.file}: rope_factors_short and rope_factors_long must both be there")
        return {"original_max_position_embeddings": original}
    given: dict[str, Any] = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    scale = context / original
    usual = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
    if not math.isclose(said, usual, rel_tol=1e-6):  # Rounded to float32 in the file.
        given["attention_factor"] = said
    context_keys = {"original_max_position_embeddings": original}
    return {**context_keys, "rope_scaling": given | context_keys}


def share(fields: gguf_fields.Fields, head: int) -> float:
    """The part of each head that is turned, such that `int(head * share)` is the number of values in the file."""
    turned = fields.size("rope.dimension_count", head)
    if turned > head:
        raise fields.wrong("rope.dimension_count", f"{turned} values of a head of {head}")
    part = turned / head
    return part if int(head * part) == turned else math.nextafter(part, 1)


def _by_type(fields: gguf_fields.Fields) -> dict[str, Any] | None:
    """As llama.cpp reads them: without a type the scaling is linear, and older files call it `rope.scale_linear`."""
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
    given: dict[str, Any] = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    names = {"yarn_attn_factor": "attention_factor", "yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
    for key, name in names.items():
        if fields.value(f"rope.scaling.{key}") is not None:
            given[name] = fields.number(f"rope.scaling.{key}")
    if fields.number("rope.scaling.yarn_ext_factor", 1.0) != 1:
        raise fields.wrong("rope.scaling.yarn_ext_factor", "only 1 is supported")
    return given


def _factors(fields: gguf_fields.Fields, name: str) -> list[float]:
    """The numbers of a tensor, if the file has it."""
    entry = fields.header.tensors.get(name)
    if entry is None:
        return []
    gguf_tensors.dtype(fields.header, entry)
    values = gguf_tensors.numbers(fields.header, entry).astype(np.float32).reshape(-1)
    if not (np.isfinite(values) & (values > 0)).all():
        raise errors.UserError(f"{fields.header.file}: {name} holds numbers that are not positive")
    return [float(str(value)) for value in values]
