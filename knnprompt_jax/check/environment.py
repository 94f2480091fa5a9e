"""The devices, their memory, and their measured speeds."""

import os
import pathlib
import re
import sys
from collections.abc import Iterator

import jax

from knnprompt_jax.benchmark import report
from knnprompt_jax.check import findings
from knnprompt_jax.check import inputs as inputs_lib

_MEMINFO = pathlib.Path("/proc/meminfo")
_CGROUP = pathlib.Path("/sys/fs/cgroup")


def run(inputs: inputs_lib.Inputs) -> Iterator[findings.Finding]:
    """Describe this machine; measure its speeds unless the run is quick."""
    machine = report.describe_machine() | {"processes": jax.process_count(), "python": sys.version.split()[0]}
    machine |= {
        "jax": jax.__version__,
        "platform_version": " ".join(jax.local_devices()[0].client.platform_version.split()),
    }
    limit = memory_bytes()
    machine["memory_of_a_device_gib"] = "unknown" if limit is None else limit / 2**30
    yield findings.Facts(machine)
    if not inputs.settings.quick:
        speeds = {f"product_in_{name}_tflop/s": speed / 1e12 for name, speed in inputs.operations_per_second.items()}
        yield findings.Facts(speeds | {"memory_bandwidth_gb/s": inputs.bytes_per_second / 1e9})


def misfit(need: float, share: float = 1.0) -> str:
    """Return why a program that needs `need` bytes on a device does not fit into a share of its memory, or ""."""
    limit = memory_bytes()
    if limit is None or need <= share * limit:
        return ""
    return f"it needs {need / 2**30:.1f} GiB on a device, and the limit is {share * limit / 2**30:.1f} GiB"


def memory_bytes() -> float | None:
    """Return the memory that JAX may use on a device, or what the host has available for a CPU; None if unknown."""
    device = jax.local_devices()[0]
    reported = device.memory_stats() or {}
    if "bytes_limit" in reported:
        return reported["bytes_limit"]
    return _host_bytes() if device.platform == "cpu" else None


def _host_bytes() -> float | None:
    """Return the memory that this process may still use: what the system has available, within its control group."""
    if not _MEMINFO.exists():
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None
    found = re.search(r"MemAvailable:\s+(\d+) kB", _MEMINFO.read_text())
    free = [1024.0 * int(found[1])] if found else []
    limit = _CGROUP / "memory.max"
    used = _CGROUP / "memory.current"
    if limit.exists() and used.exists() and (text := limit.read_text().strip()) != "max":
        free.append(float(text) - float(used.read_text()))
    return min(free, default=None)


CHECKS = (findings.Check("environment", run),)
