"""Fair timing on a machine that does other things too: turns are interleaved, medians are compared."""

import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

Turn = Callable[[], float]
"""Does the work once, waits for its end and returns the seconds it took."""


def stopwatch(work: Callable[[], Any]) -> Turn:
    """A turn of work whose result is ready when the time is taken."""

    def turn() -> float:
        started = time.perf_counter()
        jax.block_until_ready(work())
        return time.perf_counter() - started

    return turn


def interleave(turns: Mapping[str, Turn], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each contender: one untimed turn, then `repetitions` rounds in which each has one turn."""
    for turn in turns.values():
        turn()  # Compiles, and touches the memory.
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(repetitions):
        for name, turn in turns.items():
            seconds[name].append(turn())
    return seconds


def medians(turns: Mapping[str, Turn], repetitions: int) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in interleave(turns, repetitions).items()}


def peak_bytes() -> tuple[int, str]:
    """The most memory used so far, and whose: the first device's, or this process's where the device does not count."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"], "device"
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "resident"
