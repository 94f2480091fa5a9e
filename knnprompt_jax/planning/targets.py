"""Devices to plan for: TPU slices, NVIDIA GPUs of one host, and CPUs.

Speeds are the makers' figures and those of JAX's scaling book (https://jax-ml.github.io/scaling-book). The memory of a TPU is what its
compiler allows; the memory of a GPU is the three quarters that JAX reserves by default.
"""

import dataclasses
import importlib.util
import math
import os
from typing import Any

from knnprompt_jax import errors

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Device:
    """One kind of device.

    Attributes:
        platform: JAX's name of the platform.
        topologies: the supported shapes of a slice; empty if any number of devices of one host is supported.
        memory: bytes that a program may take.
        peak: operations per second in bfloat16 with float32 sums; 0 if no time is estimated.
        peak_float32: operations per second in full float32 (six bfloat16 products on a TPU).
        bandwidth: bytes per second between the device and its memory.
        links: bytes per second that a device sends to the others of its mesh axis.
    """

    platform: str
    topologies: tuple[str, ...]
    memory: float
    peak: float = 0.0
    peak_float32: float = 0.0
    bandwidth: float = 0.0
    links: float = 0.0


# A TPU's ring uses a link in each direction of its mesh axis.
DEVICES = {
    "v4": Device("tpu", ("2x2x1", "2x2x4"), 30.75 * GIB, 275e12, 275e12 / 6, 1.23e12, 2 * 45e9),
    "v5e": Device("tpu", ("2x2", "2x4", "4x4", "16x16"), 15.75 * GIB, 197e12, 197e12 / 6, 0.82e12, 2 * 45e9),
    "v5p": Device("tpu", ("2x2x1", "2x2x4"), 95.74 * GIB, 459e12, 459e12 / 6, 2.77e12, 2 * 90e9),
    "v6e": Device("tpu", ("2x4",), 31.25 * GIB, 918e12, 918e12 / 6, 1.64e12, 2 * 90e9),
    "h100": Device("cuda", (), 0.75 * 84942979072, 989e12, 67e12, 3.35e12, 450e9),
    "cpu": Device("cpu", (), 16 * GIB),
}


@dataclasses.dataclass(frozen=True)
class Target:
    """Several devices of one kind: "v5e:4x4", "h100:8" or "cpu:8"."""

    name: str
    device: Device
    size: int

    def devices(self) -> list[Any]:
        """Return the devices of a TPU slice that need not exist, for ahead-of-time compilation."""
        # libtpu looks for neither a TPU nor its metadata server, and a second process may load it too.
        os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}
        os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
        from jax.experimental import topologies

        return topologies.get_topology_desc(platform="tpu", topology_name=self.name).devices


def get(name: str, compile: bool = True) -> Target:
    """Return the target of a name.

    Raises:
        UserError: an unknown name, or `compile` for a TPU whose compiler is not installed.
    """
    kind, _, shape = name.partition(":")
    device = DEVICES.get(kind)
    if not device or not (shape in device.topologies or (not device.topologies and shape.isdecimal() and int(shape))):
        names = [
            f"{kind}:{shape}" for kind, device in DEVICES.items() for shape in device.topologies or ("8 (any number)",)
        ]
        raise errors.UserError(f"topology={name!r}: choose from {', '.join(names)}")
    if compile and device.platform == "tpu" and not importlib.util.find_spec("libtpu"):
        raise errors.UserError(
            f"topology={name!r}: its compiler is not installed: pip install 'knnprompt_jax[tpu]', or choose --compile=False"
        )
    return Target(name, device, math.prod(map(int, shape.split("x"))))
