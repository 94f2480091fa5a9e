"""What an optimised program (HLO, as text) says of itself: the compiler's cycles by part, collectives, copies, types.

Every instruction counts as often as the loops around it run. A TPU's compiler writes `estimated_cycles` to most instructions, not
to collectives nor to kernels; compilers for other devices write none.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from knnprompt_jax.models import prefix_kernel

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(")
_ARRAY = re.compile(r"\b(pred|bf16|[suf]\d+|f8\w+)\[([\d,]*)\](\{[^}]*\})?")
_CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_EXPONENTIALS = re.compile(r'"transcendentals":"(\d+)"')
_SCOPE = re.compile(r'op_name="([^"]*)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_PAIRS = re.compile(r"source_target_pairs=\{(\{.*?\})\}")
_TILED = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_NAMED = re.compile(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([^}]*)\}")
_LISTED = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")
# Of our attention kernel, for which the compiler writes none, in the schedules that it makes (v5e, bfloat16; heads of 64 and 128, 128 to
# 1,920 tokens of prefix): cycles per exponential, and of each query of a head per block of the prefix and for everything else.
KERNEL_CYCLES, KERNEL_BLOCK_CYCLES, KERNEL_QUERY_CYCLES = 0.0033, 1.7, 1.9
_OPERANDS = "operand_layout_constraints"
_NO_WORK = (
    "parameter",
    "get-tuple-element",
    "tuple",
    "bitcast",
    "while",
    "conditional",
    "call",
    "optimization-barrier",
)
_IN_FAST_MEMORY = "S(1)"  # Of a TPU: no copy in its main memory.


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a program: what it gives (as HLO writes a shape), its kind, the named scopes that it stems from."""

    name: str
    shape: str
    kind: str
    scope: str
    line: str

    @property
    def cycles(self) -> int:
        if "tpu_custom_call" in self.line and (exponentials := _EXPONENTIALS.search(self.line)):
            return round(self._of_kernel(int(exponentials[1])))
        found = _CYCLES.search(self.line)
        return int(found[1]) if found else 0

    def _of_kernel(self, exponentials: int) -> float:
        """Of `prefix_kernel`, whose fifth and seventh operand have a row per key of the prefix, and a column per key of a row."""
        operands = [_numbers(dims) for _, dims, _ in _ARRAY.findall(self.line[self.line.index(_OPERANDS) :])]
        prefix, row = operands[4][0], operands[6][1]
        blocks = math.ceil(prefix / prefix_kernel.TILES["tpu"].keys)
        queries = exponentials / (prefix + row)
        return KERNEL_CYCLES * exponentials + (KERNEL_BLOCK_CYCLES * blocks + KERNEL_QUERY_CYCLES) * queries


@dataclasses.dataclass(frozen=True)
class Collective:
    """A collective: its kind, the mesh axes over which it goes, the devices that take part together, the bytes of the whole array
    on one of them, and how often it runs."""

    kind: str
    axes: tuple[str, ...]
    devices: int
    nbytes: int
    times: int

    @property
    def sent(self) -> float:
        """Bytes that a device sends in all, in a ring."""
        rounds = {"all-reduce": 2.0, "collective-permute": self.devices / max(1, self.devices - 1)}.get(self.kind, 1.0)
        return self.times * self.nbytes * rounds * (self.devices - 1) / self.devices


class Program:
    """An optimised program, parsed."""

    def __init__(self, text: str):
        self.text = text
        self.computations, self.entry = _parse(text)

    def cycles(self, parts: Collection[str]) -> dict[str, int]:
        """Estimated cycles by part: the innermost of an instruction's named scopes that is one of `parts`; "other" for the rest."""
        totals: dict[str, int] = collections.defaultdict(int)
        for instruction, times in self._walk(self.entry, 1):
            if instruction.cycles:
                scopes = [scope for scope in instruction.scope.split("/") if scope in parts]
                totals[scopes[-1] if scopes else "other"] += times * instruction.cycles
        return dict(totals)

    def collectives(self, mesh: Mapping[str, int]) -> list[Collective]:
        """All collectives, given the sizes of the mesh's axes, equal ones as one."""
        counts: dict[tuple[str, tuple[str, ...], int, int], int] = collections.Counter()
        for instruction, times in self._walk(self.entry, 1, into_fusions=True):
            kind = instruction.kind.removesuffix("-start")
            if kind in COLLECTIVES:
                groups = _groups(instruction.line, math.prod(mesh.values()))
                devices = len(groups[0])
                nbytes = max(_nbytes(*found.groups()[:2]) for found in _ARRAY.finditer(instruction.shape))
                nbytes *= devices if kind == "reduce-scatter" else 1
                counts[kind, _axes(groups, mesh), devices, nbytes] += times
        return [Collective(*key, times) for key, times in counts.items()]

    def copies(self, arguments: str, least: int = 2**20) -> list[str]:
        """Copies in main memory of whole arguments whose names begin so, each as its shape and scopes; small ones do not count."""
        whole = {}
        for line in self.computations[self.entry]:
            if line.kind == "parameter" and line.scope.startswith(arguments):
                (dtype, dims), *_ = [found.groups()[:2] for found in _ARRAY.finditer(line.shape)]
                if _nbytes(dtype, dims) >= least:
                    whole[_sides(dims)] = line.name
        found = []
        for instruction, _ in self._walk(self.entry, 1):
            arrays = list(_ARRAY.finditer(instruction.shape))
            if instruction.kind in _NO_WORK or len(arrays) != 1 or _IN_FAST_MEMORY in (arrays[0][3] or ""):
                continue
            if _sides(arrays[0][2]) in whole:
                found.append(f"{instruction.kind} {arrays[0][1]}[{arrays[0][2]}] {instruction.scope}")
        return found

    def has(self, dtype: str) -> bool:
        """Whether any array has this type, say "f64"."""
        return re.search(rf"\b{dtype}\[", self.text) is not None

    def _walk(self, name: str, times: int, into_fusions: bool = False) -> Iterator[tuple[Instruction, int]]:
        """Each instruction from a computation on, with how often it runs; of a conditional, every branch."""
        for instruction in self.computations.get(name, ()):
            yield instruction, times
            called = _CALLED.findall(instruction.line)
            if instruction.kind == "while":
                body = re.search(r"body=%?([\w.\-]+)", instruction.line)
                assert body
                yield from self._walk(body[1], times * self._trips(instruction), into_fusions)
            elif instruction.kind == "conditional":
                for branch in _branches(instruction.line):
                    yield from self._walk(branch, times, into_fusions)
            elif instruction.kind in ("call", "async-start") or (into_fusions and instruction.kind == "fusion"):
                for each in called:
                    yield from self._walk(each, times, into_fusions)

    def _trips(self, loop: Instruction) -> int:
        """How often a loop runs: as the compiler says, or the largest number that its condition compares with."""
        if known := _TRIPS.search(loop.line):
            return int(known[1])
        condition = re.search(r"condition=%?([\w.\-]+)", loop.line)
        assert condition
        return max([1, *self._constants(condition[1])])

    def _constants(self, name: str) -> Iterator[int]:
        for instruction in self.computations.get(name, ()):
            if found := re.search(r" [su]32\[\]\S* constant\((\d+)\)", instruction.line):
                yield int(found[1])
            for called in _CALLED.findall(instruction.line):
                yield from self._constants(called)


def _parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
    computations: dict[str, list[Instruction]] = {}
    current, entry = "", ""
    for line in text.splitlines():
        if not line.startswith(" "):
            if head := _COMPUTATION.match(line):
                current = head[2]
                computations[current] = []
                entry = current if head[1] else entry
        elif current and (found := _INSTRUCTION.match(line)):
            scope = _SCOPE.search(line)
            computations[current].append(Instruction(found[1], found[2], found[3], scope[1] if scope else "", line))
    return computations, entry


def _branches(line: str) -> list[str]:
    listed = re.search(r"branch_computations=\{([^}]*)\}", line)
    if listed:
        return re.findall(r"%?([\w.\-]+)", listed[1])
    return re.findall(r"(?:true|false)_computation=%?([\w.\-]+)", line)


def _groups(line: str, size: int) -> list[list[int]]:
    """The devices that take part together, by their place in the mesh, from any of the forms in which HLO writes that."""
    if pairs := _PAIRS.search(line):
        return [_numbers(pair) for pair in re.findall(r"\{([\d,]+)\}", pairs[1])]
    if tiled := _TILED.search(line):
        return _order(tiled[2], tiled[3]).reshape(_numbers(tiled[1])).tolist()
    if named := _NAMED.search(line):
        sides = {name: int(side) for name, side in re.findall(r"'(\w+)'=(\d+)", named[1])}
        devices = _order(named[2] or str(size), named[3]).reshape(*sides.values())
        chosen = [list(sides).index(name) for name in re.findall(r"\w+", named[4])]
        last = np.moveaxis(devices, chosen, range(-len(chosen), 0))
        return last.reshape(-1, math.prod(devices.shape[axis] for axis in chosen)).tolist()
    if listed := _LISTED.search(line):
        return [_numbers(group) for group in re.findall(r"\{([\d,]+)\}", listed[1])] or [list(range(size))]
    raise ValueError(f"a collective whose devices are written in a way that is not known: {line.strip()[:300]}")


def _order(sides: str, axes: str | None) -> np.ndarray:
    """0, 1 … in an array of these sides, its axes then transposed; flat."""
    devices = np.arange(math.prod(_numbers(sides))).reshape(_numbers(sides))
    return (devices.transpose(_numbers(axes)) if axes else devices).reshape(-1)


def _axes(groups: list[list[int]], mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The axes of the mesh along which the devices of a group differ."""
    places = [np.array(np.unravel_index(group, tuple(mesh.values()))) for group in groups]
    return tuple(
        axis for number, axis in enumerate(mesh) if any((place[number] != place[number][0]).any() for place in places)
    )


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _sides(dims: str) -> tuple[int, ...]:
    """The sides of an array in order of size, without those of 1."""
    return tuple(sorted(side for side in _numbers(dims) if side > 1))


def _nbytes(dtype: str, dims: str) -> int:
    bits = 8 if dtype == "pred" else int(re.findall(r"\d+", dtype)[0])
    return math.prod(_numbers(dims)) * max(8, bits) // 8
