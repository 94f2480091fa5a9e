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
_SIDE_ON_CPU = 2048
Turn = Callable[[], float]
"""Do the work once, wait for its end and return the seconds it took."""


def stopwatch(work: Callable[[], Any]) -> Turn:
    """Return a turn that times `work` until its result is ready."""

    def turn() -> float:
        started = time.perf_counter()
        jax.block_until_ready(work())
        return time.perf_counter() - started

    return turn


def medians(turns: Mapping[str, Turn], repetitions: int, pause: float = 0.0) -> dict[str, float]:
    """Return the median seconds of each contender: after an untimed turn, each has one turn in each of `repetitions` rounds.

    A pause of some seconds before each turn lets the threads of the library before it come to rest.
    """
    for turn in turns.values():
        turn()  # Compiles, and touches the memory.
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for name, turn in [*turns.items()] * repetitions:
        time.sleep(pause)
        seconds[name].append(turn())
    return {name: statistics.median(times) for name, times in seconds.items()}


def peak_bytes() -> tuple[int, str]:
    """Return the most memory used so far, and whether it is the "device" memory or the "resident" memory of this process."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"], "device"
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "resident"


def matrix_products(dtype: jnp.dtype) -> tuple[Turn, int]:
    """Return a turn of a chain of products of square matrices, and its operations."""
    side, length = _SIDE_ON_CPU if jax.default_backend() == "cpu" else 8192, 2
    # Scaled so that a chain neither overflows nor fades into denormal numbers, which are slow.
    x_DD, y_DD = (jax.random.normal(jax.random.key(seed), (side, side), dtype) / side**0.5 for seed in range(2))
    return stopwatch(functools.partial(_chain, x_DD, y_DD, length=length)), 2 * side**3 * length


def memory_reads() -> tuple[Turn, int]:
    """Return a turn of a product of a matrix and one vector, and its bytes: too many for any cache."""
    x_ND = jnp.ones((65536, 2048))
    return stopwatch(functools.partial(_product, x_ND, x_ND[0])), x_ND.nbytes


_product = jax.jit(jnp.matmul)


@functools.partial(jax.jit, static_argnames="length")
def _chain(x_DD: Array, y_DD: Array, length: int) -> Array:
    with jax.default_matmul_precision("highest"):
        return jax.lax.fori_loop(0, length, lambda _, product_DD: product_DD @ y_DD, x_DD)
