"""The devices, their memory, and their measured speeds."""

import os
import sys
from collections.abc import Iterator

import jax

from knnprompt_jax.benchmark import report
from knnprompt_jax.check import check
from knnprompt_jax.check import subject as subject_lib


def run(subject: subject_lib.Subject) -> Iterator[check.Finding]:
    """Describe this machine; measure its speeds unless the run is quick."""
    machine = report.describe_machine() | {"processes": jax.process_count(), "python": sys.version.split()[0]}
    machine |= {
        "jax": jax.__version__,
        "platform_version": " ".join(jax.local_devices()[0].client.platform_version.split()),
    }
    machine["memory_of_a_device"] = f"{memory_bytes() / 2**30:.1f} GiB"
    if not subject.settings.quick:
        for dtype, speed in subject.operations_per_second.items():
            machine[f"product_in_{dtype}"] = f"{speed / 1e12:.3g} TFLOP/s"
        machine["memory_bandwidth"] = f"{subject.bytes_per_second / 1e9:.3g} GB/s"
    yield check.Facts(machine)


def memory_bytes() -> float:
    """Return the memory that a program may use on a device: what the device reports, or what the host has free."""
    reported = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in reported:
        return reported["bytes_limit"]
    if sys.platform == "linux":
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


CHECKS = (check.Check("environment", run),)
