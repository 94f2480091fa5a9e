"""Devices that programs are compiled for without having one: TPU slices, NVIDIA GPUs of one host, and this machine's CPU.

The numbers of a device are the makers' and those of JAX's scaling book (https://jax-ml.github.io/scaling-book); memory is what a
program may take: of a TPU what its compiler allows, of a GPU the three quarters that JAX sets aside for itself by default.
"""

import dataclasses
import importlib.util
import os
import pathlib
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.planning import h100

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Device:
    """One kind of device.

    Attributes:
        platform: as JAX calls it.
        topologies: the shapes that it is planned for; any number of devices of one host where this is empty.
        memory: bytes that a program may take.
        peak: operations per second in bfloat16 with float32 sums.
        clock: cycles per second, in which the compiler counts.
        bandwidth: bytes per second that a device sends to the others of its mesh axis.
    """

    platform: str
    topologies: tuple[str, ...]
    memory: float
    peak: float = 0.0
    clock: float = 0.0
    bandwidth: float = 0.0


# A TPU's ring uses a link in each direction of its mesh axis.
DEVICES = {
    "v4": Device("tpu", ("2x2x1", "2x2x4"), 30.75 * GIB, 275e12, 1.05e9, 2 * 45e9),
    "v5e": Device("tpu", ("2x2", "2x4", "4x4", "16x16"), 15.75 * GIB, 197e12, 1.5e9, 2 * 45e9),
    "v5p": Device("tpu", ("2x2x1", "2x2x4"), 95.74 * GIB, 459e12, 1.75e9, 2 * 90e9),
    "v6e": Device("tpu", ("2x4",), 31.25 * GIB, 918e12, 1.75e9, 2 * 90e9),
    "h100": Device("cuda", (), 0.75 * h100.MEMORY, 989e12, 0.0, 450e9),
    "cpu": Device("cpu", (), 16 * GIB),
}
# What each platform's compiler needs: a package to import, and how it is installed.
_NEEDED = {"tpu": ("libtpu", "tpu"), "cuda": ("jax_plugins.xla_cuda13", "cuda")}


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind of device, and how many of them lie where: "v5e:4x4", "h100:8" or "cpu:8"."""

    name: str
    device: Device
    shape: str

    @property
    def size(self) -> int:
        """The number of devices."""
        total = 1
        for side in self.shape.split("x"):
            total *= int(side)
        return total

    def environment(self) -> dict[str, str]:
        """Variables that a process needs which compiles for it, before JAX is imported."""
        variables = {"JAX_PLATFORMS": "cpu"}
        if self.device.platform == "cpu":
            return variables | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={self.size}"}
        if (
            self.device.platform == "tpu"
        ):  # Neither a TPU nor its server of facts is looked for; a second process may load it too.
            described = {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}
            return variables | described | {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
        tools = _cuda_tools()
        flags = (
            f"--xla_gpu_autotune_level=0 --xla_gpu_cuda_data_dir={tools}"  # There is no GPU on which to try kernels.
        )
        paths = {"PATH": f"{tools}/bin{os.pathsep}{os.environ['PATH']}", "XLA_FLAGS": flags}
        return variables | paths | {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "CUDA_VISIBLE_DEVICES": "-1"}

    def devices(self) -> list[Any]:
        """The devices, in a process with these variables."""
        import jax
        from jax.experimental import topologies

        if self.device.platform == "cpu":
            return jax.devices("cpu")
        if self.device.platform == "tpu":
            return topologies.get_topology_desc(platform="tpu", topology_name=self.name).devices
        shape = f"1x1x{self.size}"
        return topologies.get_topology_desc(platform="cuda", target_config=h100.TARGET, topology=shape).devices


def get(name: str, compile: bool = True) -> Target:
    """The target of a name. Raises UserError, with the choices, on one that is not known, or that is to be compiled for where its
    compiler is not installed."""
    kind, _, shape = name.partition(":")
    device = DEVICES.get(kind)
    known = device and (shape in device.topologies or (not device.topologies and shape.isdecimal() and int(shape) > 0))
    if not device or not known:
        raise errors.UserError(f"topology={name!r}: choose from {', '.join(_listed())}")
    if compile and (missing := obstacle(device.platform)):
        raise errors.UserError(f"topology={name!r}: {missing}")
    return Target(name, device, shape)


def obstacle(platform: str) -> str:
    """Why programs cannot be compiled for a platform here; empty where they can."""
    package, extra = _NEEDED.get(platform, ("", ""))
    if not package or _is_there(package):
        return ""
    return f"its compiler is not installed: pip install 'knnprompt_jax[{extra}]'"


def _listed() -> list[str]:
    return [f"{kind}:{shape}" for kind, device in DEVICES.items() for shape in device.topologies or ("8 (any number)",)]


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # The package that it is a part of is not there.
        return False


def _cuda_tools() -> pathlib.Path:
    """The folder of CUDA's assembler and libraries, which come as packages; empty where they do not."""
    found = importlib.util.find_spec("nvidia")
    folders = [pathlib.Path(folder) / "cu13" for folder in found.submodule_search_locations or ()] if found else []
    return next((folder for folder in folders if folder.is_dir()), pathlib.Path())
