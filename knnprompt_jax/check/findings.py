"""The interface of checks and what they find."""

import dataclasses
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.check import inputs as inputs_lib


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
    """A part of a check that gave no result.

    Attributes:
        compared: what was to be compared; "": the whole check.
        reason: why there is no result, in one line.
        traceback: the traceback of the exception, if there was one.
    """

    compared: str
    reason: str
    traceback: str = ""

    @classmethod
    def by(cls, compared: str, error: Exception) -> "Failed":
        """Return the failure that an exception explains."""
        reason = f"{type(error).__name__}: {errors.shortened(errors.one_line(error))[:300]}"
        return cls(compared, reason, errors.printable("".join(traceback.format_exception(error))))


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


def compare(compared: str, measure: Callable[[], float], allowed: float, reason: str) -> Comparison | Failed:
    """Return the comparison with the deviation that `measure` returns, or the failure if it raises.

    So later comparisons of a check still run.
    """
    try:
        return Comparison(compared, measure(), allowed, reason)
    except Exception as error:  # A bug, or whatever a compiler or a driver raises.
        return Failed.by(compared, error)


@dataclasses.dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        name: its name in the table.
        run: yields what it finds.
        seconds: estimates the time that it takes; it does not run if less time is left.
        misfit: returns why it cannot run on these devices, or "".
        is_measurement: whether it only measures speeds; if the memory does not suffice, it counts as not run.
    """

    name: str
    run: Callable[[inputs_lib.Inputs], Iterator[Finding]]
    seconds: Callable[[inputs_lib.Inputs], float] = lambda inputs: 0.0
    misfit: Callable[[], str] = lambda: ""
    is_measurement: bool = False

    def stopped(self, error: Exception) -> Failed | Skipped:
        """Return what an exception of the check, a bug or whatever a compiler or a driver raises, means."""
        failure = Failed.by("", error)
        is_too_large = self.is_measurement and errors.is_out_of_memory(error)
        return Skipped("", failure.reason) if is_too_large else failure
