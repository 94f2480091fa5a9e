"""Interleaved timing, and the measured speed of matrix products."""

import functools
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array
Turn = Callable[[], float]
"""Do the work once, wait for its end and return the seconds it took."""


def stopwatch(work: Callable[[], Any]) -> Turn:
    """Return a turn that times `work` until its result is ready."""

    def turn() -> float:
        started = time.perf_counter()
        jax.block_until_ready(work())
        return time.perf_counter() - started

    return turn


def medians(turns: Mapping[str, Turn], repetitions: int) -> dict[str, float]:
    """Return the median seconds of each contender: after an untimed turn, each has one turn in each of `repetitions` rounds."""
    for turn in turns.values():
        turn()  # Compiles, and touches the memory.
    rounds = [{name: turn() for name, turn in turns.items()} for _ in range(repetitions)]
    return {name: statistics.median(seconds[name] for seconds in rounds) for name in turns}


def peak_bytes() -> tuple[int, str]:
    """Return the most memory used so far, and whether it is the "device" memory or the "resident" memory of this process."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"], "device"
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "resident"


def matrix_products(dtype: jnp.dtype, *shapes: tuple[int, int, int]) -> dict[str, tuple[Turn, int]]:
    """Return a turn and its operations for each chain of products [T, D] by [D, F] by [F, D], by name.

    The first chain multiplies square matrices. `shapes` are further T, D and F.
    """
    side, chains = default_side(), {}
    for tokens, width, hidden in ((side, side, side), *shapes):
        operations = 4 * tokens * width * hidden
        length = max(1, min(1000, 8 * side**3 // operations))
        draw = functools.partial(jax.random.normal, dtype=dtype)
        x_TD = draw(jax.random.key(0), (tokens, width))
        # Scaled so that a chain neither overflows nor fades into denormal numbers, which are slow.
        up_DF = draw(jax.random.key(1), (width, hidden)) / width**0.5
        down_FD = draw(jax.random.key(2), (hidden, width)) / hidden**0.5
        turn = stopwatch(functools.partial(_chain, x_TD, up_DF, down_FD, length=length))
        chains[f"ceiling: {tokens}×{width}×{hidden}"] = turn, operations * length
    return chains


def default_side() -> int:
    """Return the side of the square matrices that suits the device."""
    return 2048 if jax.default_backend() == "cpu" else 8192


@functools.partial(jax.jit, static_argnames="length")
def _chain(x_TD: Array, up_DF: Array, down_FD: Array, length: int) -> Array:
    def body(x_TD: Array, _: None) -> tuple[Array, None]:
        with jax.default_matmul_precision("highest"):
            return (x_TD @ up_DF) @ down_FD, None

    return jax.lax.scan(body, x_TD, None, length=length)[0]
