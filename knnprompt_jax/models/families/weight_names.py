"""Tables of names: the tensors of a weight file, and where each belongs in the arrays of our models.

Axes are the letters of `DecoderConfig.axes`. n: several of their tensors form one of our arrays. j: one of their
tensors holds several of our arrays along this axis. t: BERT's token types.

Two examples:

- Llama's k_proj is [G · K, D]. Its pattern "(n g k) d -> d n g k" and part 0 make it the box [1, D, 1, G, K] of our
  `kv_kernel` at [layer, 0, 0, 0, 0]. v_proj is part 1, at [layer, 0, 1, 0, 0].
- Phi-3's qkv_proj is [(H + 2 G) · K, D]. Its pattern "(n j k) d -> d n j k" makes it [D, 1, H + 2 G, K], and `fused`
  ("h", "g", "g") cuts the axis j. Segment 0 is the box [1, D, H, K] of `q_kernel`, which has no part. Segments 1 and 2
  are parts 0 and 1 of `kv_kernel`, the same boxes as Llama's.
"""

import dataclasses
import math
import re
from collections.abc import Container, Mapping

import einops
import numpy as np

from knnprompt_jax.models import config as config_lib


@dataclasses.dataclass(frozen=True)
class NameRule:
    """A kind of tensor: its name in the file (`{layer}` for each block), our path, the pattern from theirs to ours.

    `part` is the index of the tensor within our array (key or value, gate or up). If their tensor holds several of
    ours, `fused` lists the sizes along its axis j (letters of axes or "1") and `segment` is the index of ours.
    `prefixed`: the full name starts with the table's prefix.
    """

    theirs: str
    ours: str
    pattern: str
    part: int | None = None
    prefixed: bool = True
    fused: tuple[str, ...] = ()
    segment: int = 0


@dataclasses.dataclass(frozen=True)
class NameTable:
    """The tensor names of one family in one format.

    A file may use any of `prefixes` or none. `buffers` is a regular expression for names
    without weights of the model. `endings` maps older endings of names to those of the rules.
    """

    rules: tuple[NameRule, ...]
    prefixes: tuple[str, ...]
    buffers: str
    endings: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def bare(self, key: str) -> str:
        """Return the key as the rules write it, without a prefix."""
        key = next((key.removeprefix(prefix) for prefix in self.prefixes if key.startswith(prefix)), key)
        return next((key.removesuffix(old) + new for old, new in self.endings.items() if key.endswith(old)), key)


@dataclasses.dataclass(frozen=True)
class Piece:
    """A tensor of a file, or a segment of it: the box of our (stacked) array `ours` at `start` with shape `box`.

    `shape` is that of their whole tensor. After rearrangement by the pattern, `segment` is a slice along axis number
    `axis`.
    """

    theirs: str
    ours: str
    start: tuple[int, ...]
    box: tuple[int, ...]
    shape: tuple[int, ...]
    pattern: str
    sizes: Mapping[str, int]
    axis: int
    segment: slice

    def import_view(self, array: np.ndarray) -> np.ndarray:
        """Return their tensor as a box of ours, as a view where NumPy can make one."""
        whole = einops.rearrange(array, self.pattern, **self.sizes)
        return whole[(slice(None),) * self.axis + (self.segment,)].reshape(self.box)


def expand(table: NameTable, config: config_lib.DecoderConfig, leaves: Container[str]) -> list[Piece]:
    """Return each tensor that the table expects of a model with these leaves, and each segment of a fused tensor."""
    pieces = []
    for rule in table.rules:
        if rule.ours in leaves:
            name = table.prefixes[0] + rule.theirs if rule.prefixed else rule.theirs
            layers = range(config.num_layers) if "{layer}" in name else [None]
            pieces += [_piece(name, rule, layer, config.axes) for layer in layers]
    return pieces


def sides(pattern: str) -> tuple[list[str], list[str]]:
    """Return the groups of axes left of the arrow, and the axes right of it."""
    left, right = pattern.split(" -> ")
    return re.findall(r"\(.*?\)|\w", left), right.split()


def _piece(name: str, rule: NameRule, layer: int | None, axes: Mapping[str, int]) -> Piece:
    groups, right = sides(rule.pattern)
    segments = [1 if size == "1" else axes[size] for size in rule.fused]
    sizes = {**axes, "n": 1, "j": sum(segments)}
    sizes = {axis: size for axis, size in sizes.items() if axis in rule.pattern}
    axis = right.index("j") if rule.fused else 0
    first = sum(segments[: rule.segment])
    segment = slice(first, first + segments[rule.segment]) if rule.fused else slice(0, sizes[right[0]])
    start = []
    box = []
    for letter in right:
        is_index_of_part = letter == "n" or (letter == "j" and rule.fused[0] == "1")
        if is_index_of_part and rule.part is None:
            continue
        start.append(rule.part or 0 if is_index_of_part else 0)
        box.append(segment.stop - segment.start if letter == "j" else sizes[letter])
    if layer is not None:
        start = [layer, *start]
        box = [1, *box]
    shape = tuple(math.prod(sizes[axis] for axis in re.findall(r"\w", group)) for group in groups)
    theirs = name.format(layer=layer)
    return Piece(theirs, rule.ours, tuple(start), tuple(box), shape, rule.pattern, sizes, axis, segment)


# Rules of layers that every family has. `expand` skips rules for weights that a model lacks.
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
    left, right = sides(pattern)
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
