"""Weights under other names: what a conversion table is, and the tensors it expects of a model.

A table is data, read in both directions: an einops pattern turns into its reverse when its sides are swapped.
Axes are named by the package's letters in lower case (v m e d h k f), n for the parts query, key and value, and t for
BERT's token types.
"""

import dataclasses
import math
import re
from collections.abc import Container, Mapping

import einops
import numpy as np

from knnprompt_jax.models import config as config_lib


@dataclasses.dataclass(frozen=True)
class Rule:
    """One kind of tensor: its name there (`{layer}` for each block), our path, the pattern from theirs to ours.

    `part` says which of query, key and value the tensor is where these are stored apart;
    `prefixed`, whether the whole name starts with the table's prefix.
    """

    theirs: str
    ours: str
    pattern: str
    part: int | None = None
    prefixed: bool = True


@dataclasses.dataclass(frozen=True)
class Table:
    """The names of one format of one family.

    A file may have any of `prefixes` or none; an export has the first. `buffers` is a regular expression for names
    that carry no weights of the model. `endings` maps older endings of names to those of the rules.
    """

    rules: tuple[Rule, ...]
    prefixes: tuple[str, ...]
    buffers: str
    endings: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def bare(self, key: str) -> str:
        """The key without an optional prefix, as the rules write it."""
        key = next((key.removeprefix(prefix) for prefix in self.prefixes if key.startswith(prefix)), key)
        return next((key.removesuffix(old) + new for old, new in self.endings.items() if key.endswith(old)), key)

    def is_buffer(self, bare_key: str) -> bool:
        return re.fullmatch(self.buffers, bare_key) is not None


@dataclasses.dataclass(frozen=True)
class Piece:
    """One tensor of a model: the box of our (stacked) array `ours` that starts at `start` and has shape `box`."""

    theirs: str
    ours: str
    start: tuple[int, ...]
    box: tuple[int, ...]
    shape: tuple[int, ...]
    pattern: str
    sizes: Mapping[str, int]

    def import_view(self, array: np.ndarray) -> np.ndarray:
        """Their tensor as a box of ours; a view wherever NumPy can give one."""
        return einops.rearrange(array, self.pattern, **self.sizes).reshape(self.box)

    def export(self, array: np.ndarray) -> np.ndarray:
        """Their tensor, cut from the whole of our array."""
        box = array[tuple(slice(start, start + size) for start, size in zip(self.start, self.box, strict=True))]
        left, right = self.pattern.split(" -> ")
        box = box.reshape([self.sizes[axis] for axis in right.split()])
        return np.ascontiguousarray(einops.rearrange(box, f"{right} -> {left}", **self.sizes))


def expand(table: Table, config: config_lib.DecoderConfig, leaves: Container[str]) -> list[Piece]:
    """Every tensor that the table expects of a model with these leaves, under its whole name."""
    pieces = []
    for rule in table.rules:
        if rule.ours in leaves:
            name = table.prefixes[0] + rule.theirs if rule.prefixed else rule.theirs
            layers = range(config.num_layers) if "{layer}" in name else [None]
            pieces += [_piece(name, rule, layer, _sizes(config, rule)) for layer in layers]
    return pieces


def _sizes(config: config_lib.DecoderConfig, rule: Rule) -> dict[str, int]:
    sizes = config.axes | {"n": 3 if rule.part is None else 1}
    return {axis: size for axis, size in sizes.items() if axis in rule.pattern}


def _piece(name: str, rule: Rule, layer: int | None, sizes: dict[str, int]) -> Piece:
    left, right = rule.pattern.split(" -> ")
    start = [rule.part or 0 if axis == "n" else 0 for axis in right.split()]
    box = [sizes[axis] for axis in right.split()]
    if layer is not None:
        start, box = [layer, *start], [1, *box]
    groups = re.findall(r"\(.*?\)|\w", left)
    shape = tuple(math.prod(sizes[axis] for axis in re.findall(r"\w", group)) for group in groups)
    return Piece(name.format(layer=layer), rule.ours, tuple(start), tuple(box), shape, rule.pattern, sizes)
