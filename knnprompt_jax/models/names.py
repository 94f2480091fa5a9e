"""Rules for the layers that every family has under some name; weights that a model lacks are passed over (`conversion.expand`)."""

import dataclasses

from knnprompt_jax.models import conversion
from knnprompt_jax.models.conversion import NameRule

HEAD = NameRule("lm_head.weight", "head_rows", "v e -> v e", prefixed=False)


def norm(theirs: str, ours: str, pattern: str = "d -> d") -> tuple[NameRule, NameRule]:
    """The scale and the bias of a normalisation."""
    return NameRule(f"{theirs}.weight", f"{ours}.scale", pattern), NameRule(f"{theirs}.bias", f"{ours}.bias", pattern)


def dense(
    theirs: str, ours: str, pattern: str, part: int | None = None, fused: tuple[str, ...] = (), segment: int = 0
) -> tuple[NameRule, NameRule]:
    """The kernel and the bias of a dense layer; `pattern` is the kernel's, in ours the axes of the input come first.

    PyTorch's Linear keeps its kernel (out, in), its Conv1D (in, out).
    """
    return (
        NameRule(f"{theirs}.weight", f"{ours}_kernel", pattern, part, fused=fused, segment=segment),
        NameRule(f"{theirs}.bias", f"{ours}_bias", _of_bias(pattern), part, fused=fused, segment=segment),
    )


def attention(query: str, key: str, value: str, output: str) -> tuple[NameRule, ...]:
    """The four Linear layers of attention."""
    return (
        *dense(query, "blocks.attention.q", "(h k) d -> d h k"),
        *dense(key, "blocks.attention.kv", "(n g k) d -> d n g k", 0),
        *dense(value, "blocks.attention.kv", "(n g k) d -> d n g k", 1),
        *dense(output, "blocks.attention.out", "d (h k) -> h k d"),
    )


def fused_attention(theirs: str, pattern: str, sizes: tuple[str, str, str]) -> tuple[NameRule, ...]:
    """Queries, keys and values of one dense layer; `sizes` are theirs along the axis j (see `conversion.NameRule`)."""
    return (
        *dense(theirs, "blocks.attention.q", pattern, fused=sizes, segment=0),
        *dense(theirs, "blocks.attention.kv", pattern, 0, sizes, 1),
        *dense(theirs, "blocks.attention.kv", pattern, 1, sizes, 2),
    )


def flax(table: conversion.NameTable) -> conversion.NameTable:
    """The table of Flax's files of a family: kernels lie the other way round than PyTorch's, and weights are called by their kind."""
    return dataclasses.replace(table, rules=tuple(map(_of_flax, table.rules)), endings={})


def _of_bias(pattern: str) -> str:
    left, right = conversion.sides(pattern)
    (output,) = (group for group in left if right[0] not in group)
    return f"{output} -> {' '.join(axis for axis in right if axis in output)}"


def _of_flax(rule: NameRule) -> NameRule:
    path, _, kind = rule.theirs.rpartition(".")
    if kind == "bias":
        return rule
    if rule.ours.endswith(".scale"):
        return dataclasses.replace(rule, theirs=f"{path}.scale")
    if rule.ours in ("tokens", "positions", "types"):
        return dataclasses.replace(rule, theirs=f"{path}.embedding")
    left, right = conversion.sides(rule.pattern)
    return dataclasses.replace(rule, theirs=f"{path}.kernel", pattern=f"{' '.join(left[::-1])} -> {' '.join(right)}")
