"""The interface of checks and what they find."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from knnprompt_jax.check import subject as subject_lib


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The largest deviation of a result from its reference.

    Attributes:
        compared: what was compared with what, and the unit.
        deviation: the largest deviation; NaN never passes.
        allowed: the largest deviation that passes.
        reason: why so much is allowed.
    """

    compared: str
    deviation: float
    allowed: float
    reason: str

    @property
    def passes(self) -> bool:
        return bool(self.deviation <= self.allowed)


@dataclasses.dataclass(frozen=True)
class Failed:
    """A part of a check that gave no result."""

    compared: str


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A part of a check that does not apply or does not fit, and why."""

    compared: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Facts:
    """Single values, by name."""

    values: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of measurements in the table of a name."""

    table: str
    values: dict[str, Any]


Finding = Comparison | Failed | Skipped | Facts | Row


@dataclasses.dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: its name in the table.
        run: yields what it finds.
        seconds: estimates the time that it takes; it does not run if less time is left.
        misfit: returns why it cannot run on these devices, or "".
    """

    name: str
    run: Callable[[subject_lib.Subject], Iterator[Finding]]
    seconds: Callable[[subject_lib.Subject], float] = lambda subject: 0.0
    misfit: Callable[[subject_lib.Subject], str] = lambda subject: ""
