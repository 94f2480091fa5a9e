"""Describe this machine, time work in turns, and measure the speed of matrix products."""

import functools
import os
import pathlib
import platform
import re
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from knnprompt_jax.report import records

Array = jax.Array
_SIDE_ON_CPU = 2048
Turn = Callable[[], float]
"""Do the work once, wait for its end and return its seconds."""


def describe() -> dict[str, Any]:
    """Return the versions of libraries, the devices of JAX with their driver and memory, and the processor."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    processors = re.findall("model name\\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else []
    return {
        **records.environment(),
        "processes": jax.process_count(),
        "host": f"{[*processors, platform.processor()][0]}, {num_cores()} cores",
        "platform_version": " ".join(jax.local_devices()[0].client.platform_version.split()),
        "memory_of_a_device": (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", "unknown"),
    }


def peak_bytes() -> tuple[int, str]:
    """Return the maximum memory so far, and its kind: "device", or "resident" memory of this process."""
    reported = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in reported:
        return reported["peak_bytes_in_use"], "device"
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "resident"


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def stopwatch(work: Callable[[], Any]) -> Turn:
    """Return a turn that times `work` until its result is ready."""

    def turn() -> float:
        started = time.perf_counter()
        jax.block_until_ready(work())
        return time.perf_counter() - started

    return turn


def medians(turns: Mapping[str, Turn], repetitions: int) -> dict[str, float]:
    """Return the median seconds of each contender over `repetitions` rounds.

    Each contender has one untimed turn and then one turn per round.
    """
    for turn in turns.values():
        turn()  # Compiles, and allocates the memory.
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for name, turn in [*turns.items()] * repetitions:
        seconds[name].append(turn())
    return {name: statistics.median(times) for name, times in seconds.items()}


def matrix_products(dtype: jnp.dtype) -> tuple[Turn, int]:
    """Return a turn of a chain of products of square matrices, and its operations."""
    side = _SIDE_ON_CPU if jax.default_backend() == "cpu" else 8192
    length = 2
    # Scaled so that a chain neither overflows nor underflows to denormal numbers, which are slow.
    x_DD = jax.random.normal(jax.random.key(0), (side, side), dtype) / side**0.5
    y_DD = jax.random.normal(jax.random.key(1), (side, side), dtype) / side**0.5
    return stopwatch(functools.partial(_chain, x_DD, y_DD, length=length)), 2 * side**3 * length


@functools.partial(jax.jit, static_argnames="length")
def _chain(x_DD: Array, y_DD: Array, length: int) -> Array:
    with jax.default_matmul_precision("highest"):
        return jax.lax.fori_loop(0, length, lambda _, product_DD: product_DD @ y_DD, x_DD)
