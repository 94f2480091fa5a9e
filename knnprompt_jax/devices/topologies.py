"""The devices that an estimate knows: TPU slices, NVIDIA GPUs of one host, and CPUs.

Speeds are the makers' figures and those of JAX's scaling book (https://jax-ml.github.io/scaling-book). The memory of a
TPU is the compiler's limit; the memory of a GPU is the three quarters that JAX reserves by default. GPUs send over
NVLink, "h100-pcie" over PCIe.
"""

import dataclasses
import math

import jax

from knnprompt_jax.common import errors

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Device:
    """One kind of device.

    Attributes:
        platform: JAX's name of the platform.
        kinds: JAX's names of the kind of device (`jax.Device.device_kind`).
        topologies: the supported shapes of a slice; empty if any number of devices of one host is supported.
        gib: GiB that a program may use.
        peak: operations per second in bfloat16 with float32 sums; 0 if no time is estimated.
        peak_float32: operations per second in full float32.
        bandwidth: bytes per second between the device and its memory.
        links: bytes per second that a device sends to the others of its mesh axis.
    """

    platform: str
    kinds: tuple[str, ...]
    topologies: tuple[str, ...]
    gib: float
    peak: float = 0.0
    peak_float32: float = 0.0
    bandwidth: float = 0.0
    links: float = 0.0


# A float32 product of a TPU takes six bfloat16 products; its ring uses a link in each direction of its mesh axis.
DEVICES = {
    "v4": Device("tpu", ("TPU v4",), ("2x2x1", "2x2x4"), 30.75, 275e12, 275e12 / 6, 1.23e12, 90e9),
    "v5e": Device(
        "tpu", ("TPU v5e", "TPU v5 lite"), ("2x2", "2x4", "4x4", "16x16"), 15.75, 197e12, 197e12 / 6, 0.82e12, 90e9
    ),
    "v5p": Device("tpu", ("TPU v5p", "TPU v5"), ("2x2x1", "2x2x4"), 95.74, 459e12, 459e12 / 6, 2.77e12, 180e9),
    "v6e": Device("tpu", ("TPU v6e", "TPU v6 lite"), ("2x4",), 31.25, 918e12, 918e12 / 6, 1.64e12, 180e9),
    "h100": Device("cuda", ("NVIDIA H100 80GB HBM3",), (), 0.75 * 79.1, 989e12, 67e12, 3.35e12, 450e9),
    "h100-pcie": Device("cuda", ("NVIDIA H100 PCIe",), (), 0.75 * 79.1, 756e12, 51e12, 2.0e12, 64e9),
    "h200": Device("cuda", ("NVIDIA H200",), (), 0.75 * 139.8, 989e12, 67e12, 4.8e12, 450e9),
    "a100": Device("cuda", ("NVIDIA A100-SXM4-80GB",), (), 0.75 * 79.1, 312e12, 19.5e12, 2.04e12, 300e9),
    "cpu": Device("cpu", ("cpu",), (), 16),
}


@dataclasses.dataclass(frozen=True)
class Topology:
    """Several devices of one kind: "v5e:4x4", "h100:8" or "cpu:8"."""

    name: str
    device: Device
    size: int


def find(name: str | None) -> Topology:
    """Return the topology of a name, or this machine's devices if there is no name.

    Raises:
        UserError: the name or this machine's kind of device is unknown.
    """
    if not name:
        return _find_existing()
    kind, _, shape = name.partition(":")
    if kind in DEVICES:
        device = DEVICES[kind]
        is_number = shape.isdecimal() and int(shape) > 0
        if shape in device.topologies or (not device.topologies and is_number):
            return Topology(name, device, math.prod(map(int, shape.split("x"))))
    raise _unknown(name)


def _find_existing() -> Topology:
    """Return this machine's devices, with the memory that they report if they do."""
    first = jax.local_devices()[0]
    for name, device in DEVICES.items():
        if first.device_kind in device.kinds:
            gib = (first.memory_stats() or {}).get("bytes_limit", device.gib * GIB) / GIB
            size = jax.device_count()
            return Topology(f"{name}:{size}", dataclasses.replace(device, gib=gib), size)
    raise _unknown(first.device_kind)


def _unknown(name: str) -> errors.UserError:
    """Return the error of an unknown name; kinds with any number of devices have one example."""
    names = (f"{kind}:{each}" for kind, device in DEVICES.items() for each in device.topologies or ("8 (any number)",))
    return errors.UserError(f"--topology={name}: unknown devices; choose from {', '.join(names)}")
