"""Naming rules of layers that every family has. `conversion.expand` skips rules for weights that a model lacks."""

import dataclasses

from knnprompt_jax.models.weights import conversion
from knnprompt_jax.models.weights.conversion import NameRule

HEAD = NameRule("lm_head.weight", "head_rows", "v e -> v e", prefixed=False)


def norm(theirs: str, ours: str, pattern: str = "d -> d") -> tuple[NameRule, NameRule]:
    """Return the rules of a normalisation's scale and bias."""
    return NameRule(f"{theirs}.weight", f"{ours}.scale", pattern), NameRule(f"{theirs}.bias", f"{ours}.bias", pattern)


def dense(
    theirs: str, ours: str, pattern: str, part: int | None = None, fused: tuple[str, ...] = (), segment: int = 0
) -> tuple[NameRule, NameRule]:
    """Return the rules of a dense layer's kernel and bias.

    `pattern` is the kernel's; our side starts with the input axes. PyTorch's Linear stores (out, in), its Conv1D (in,
    out).
    """
    left, right = conversion.sides(pattern)
    (output,) = (group for group in left if right[0] not in group)
    bias_pattern = f"{output} -> {' '.join(axis for axis in right if axis in output)}"
    return (
        NameRule(f"{theirs}.weight", f"{ours}_kernel", pattern, part, fused=fused, segment=segment),
        NameRule(f"{theirs}.bias", f"{ours}_bias", bias_pattern, part, fused=fused, segment=segment),
    )


def attention(query: str, key: str, value: str, output: str) -> tuple[NameRule, ...]:
    """Return the rules of attention's four Linear layers."""
    return (
        *dense(query, "blocks.attention.q", "(h k) d -> d h k"),
        *dense(key, "blocks.attention.kv", "(n g k) d -> d n g k", 0),
        *dense(value, "blocks.attention.kv", "(n g k) d -> d n g k", 1),
        *dense(output, "blocks.attention.out", "d (h k) -> h k d"),
    )


def fused_attention(theirs: str, pattern: str, sizes: tuple[str, str, str]) -> tuple[NameRule, ...]:
    """Return the rules of one dense layer for queries, keys and values; `sizes` are `NameRule.fused`."""
    return (
        *dense(theirs, "blocks.attention.q", pattern, fused=sizes, segment=0),
        *dense(theirs, "blocks.attention.kv", pattern, 0, sizes, 1),
        *dense(theirs, "blocks.attention.kv", pattern, 1, sizes, 2),
    )


def flax(table: conversion.NameTable) -> conversion.NameTable:
    """Return the table of a family's Flax files, whose kernels are transposed and whose weights have other names."""

    def convert(rule: NameRule) -> NameRule:
        path, _, kind = rule.theirs.rpartition(".")
        if kind == "bias":
            return rule
        if rule.ours.endswith(".scale"):
            return dataclasses.replace(rule, theirs=f"{path}.scale")
        if rule.ours in ("tokens", "positions", "types"):
            return dataclasses.replace(rule, theirs=f"{path}.embedding")
        left, right = conversion.sides(rule.pattern)
        pattern = f"{' '.join(left[::-1])} -> {' '.join(right)}"
        return dataclasses.replace(rule, theirs=f"{path}.kernel", pattern=pattern)

    return dataclasses.replace(table, rules=tuple(map(convert, table.rules)), endings={})
