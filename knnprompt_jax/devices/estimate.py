"""Estimate a job by arithmetic, for every mesh of a topology: memory per device, operations, a lower bound of the time.

The time is a roofline: the longest of operations / peak, bytes / memory bandwidth, and collective bytes / bandwidth of
the links. Real steps take longer.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh

from knnprompt_jax.cli.command_settings import BenchmarkSettings
from knnprompt_jax.common import errors, parallel
from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.datastore import store as store_lib
from knnprompt_jax.devices import host_speed, operations, workload
from knnprompt_jax.inference.lm import execution, memory
from knnprompt_jax.inference.prompts import packing
from knnprompt_jax.models import sharding

GIB = 2**30
_GPUS_PER_HOST = 8  # The network between hosts with GPUs is not modelled.


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


# Speeds are the makers' figures and those of JAX's scaling book (https://jax-ml.github.io/scaling-book). The memory of
# a TPU is the compiler's limit; the memory of a GPU is the three quarters that JAX reserves by default. GPUs send over
# NVLink, "h100-pcie" over PCIe. A float32 product of a TPU takes six bfloat16 products; its ring uses a link in each
# direction of its mesh axis.
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

    @property
    def hosts(self) -> int:
        """The number of hosts: a TPU slice of more than 8 chips has one per 4 chips."""
        return self.size // 4 if self.device.platform == "tpu" and self.size > 8 else 1


def find_topology(name: str | None) -> Topology:
    """Return the topology of a name, or this machine's devices if there is no name.

    Raises:
        UserError: the name or this machine's kind of device is unknown.
    """
    if not name:
        return _find_existing()
    kind, _, shape = name.partition(":")
    if kind in DEVICES:
        device = DEVICES[kind]
        most = _GPUS_PER_HOST if device.platform == "cuda" else math.inf
        is_number = shape.isdecimal() and 0 < int(shape) <= most
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
    """Return the error of an unknown name; kinds without topologies have one example."""
    names = (f"{kind}:{each}" for kind, device in DEVICES.items() for each in device.topologies or (_GPUS_PER_HOST,))
    advice = f"or any other number of cpu, or up to {_GPUS_PER_HOST} GPUs: several GPU hosts are not modelled"
    return errors.UserError(f"--topology={name}: unknown devices; choose from {', '.join(names)}, {advice}")


def run(settings: BenchmarkSettings) -> dict[str, Any]:
    """Estimate the job, with one row per mesh in ascending order of the `model` axis.

    The recommended mesh has the shortest time among those that fit. If no time is estimated, it has the smallest
    `model` axis. Large axes divide the pass over the prefix, which every data shard repeats, but send more.

    Raises:
        UserError: impossible settings.
    """
    topology = find_topology(settings.topology)
    subject = workload.describe(settings.model)
    work = workload.build(settings, subject)
    anchors = settings.anchors or work.prompts.num_prompts
    host = host_speed.measure(work, settings.batch or execution.step_tokens(topology.device.platform))
    job = Job(settings, topology, work, host, anchors)
    rows = [job.estimate(size) for size in sharding.model_axes(subject.config, topology.size)]
    return {
        "ESTIMATED": "memory in GiB; devices take at least the given times; the speed of the host is measured here",
        "model": subject.name,
        "devices": topology.name,
        "anchors": anchors,
        "prefix_tokens": len(work.largest.prefix_P),
        "truncated": work.prompts.num_truncated,
        "queries": settings.queries,
        "tokens_counted_by_the_tokenizer_of": work.tokenizer_name,
        "recommended": _recommend(rows) or f"none: {subject.name} needs more memory than {topology.name} has",
        "meshes": rows,
        "host_stages": host.table(),
    }


def roofline(device: Device, dtype: str, operations: float, nbytes: float, collective_bytes: float = 0.0) -> float:
    """Return the lower bound of the seconds that a device of known speed takes."""
    peak = device.peak_float32 if dtype == "float32" else device.peak
    return max(operations / peak, nbytes / device.bandwidth, collective_bytes / device.links)


def pack(work: workload.Workload, anchors: int, step_tokens: int, data: int) -> tuple[packing.PackShape, int]:
    """Return the shape of a step and each shard's number of steps, for `anchors` prompts with the workload's lengths.

    More anchors than prompts are assumed to fill rows as the prompts do. In truth their suffixes share more tokens.
    """
    group = work.largest
    shape = packing.choose_shape([group], step_tokens)
    rows = packing.pack(group, shape).num_steps * shape.rows
    rows_per_shard = math.ceil(rows * anchors / len(group.suffixes) / data)
    steps = math.ceil(rows_per_shard / max(1, step_tokens // shape.width))
    per_step = math.ceil(rows_per_shard / steps)
    outputs = parallel.round_up(math.ceil(shape.outputs / shape.rows * per_step), 8)
    return dataclasses.replace(shape, rows=per_step, outputs=outputs), steps


@dataclasses.dataclass(frozen=True)
class Job:
    """Reading and searching `anchors` anchors on a topology."""

    settings: BenchmarkSettings
    topology: Topology
    work: workload.Workload
    host: host_speed.HostSpeed
    anchors: int

    @functools.cached_property
    def key_bytes(self) -> int:
        """Bytes of an anchor's keys."""
        config = self.work.subject.config
        return store_lib.anchor_bytes(StoreOptions(self.settings.store), "kl", config, num_classes=2)

    def estimate(self, model: int) -> dict[str, Any]:
        """Return memory in GiB, operations and times of each device, with the weights split over `model` devices.

        The peak is the maximum over time: while prompts are read, while a whole copy of the head becomes the store's,
        or while anchors are searched beside the weights. A process has all devices of its host. It reads each slice of
        the weights once, but holds one copy per device while it loads split weights. Later it holds all states twice.
        """
        device = self.topology.device
        config = self.work.subject.config
        dtype = self.settings.dtype
        data = self.topology.size // model
        step_tokens = self.settings.batch or execution.step_tokens(device.platform)
        shape, steps = pack(self.work, self.anchors, step_tokens, data)
        need = memory.estimate(config, dtype, shape, AbstractMesh((data, model), parallel.AXES), device.platform)
        # Classes of the anchors, and the head that encodes them, are stored beside their keys.
        anchors_per_device = math.ceil(self.anchors / self.topology.size)
        head_size = config.vocab_size * config.state_width
        store = (self.key_bytes + 4) * anchors_per_device + 4 * head_size
        replicated = jnp.dtype(dtype).itemsize * head_size if model > 1 else 0
        search = int(StoreOptions().memory_mb * 2**20)
        peak = max(need.total, need.weights + store + max(replicated, search))
        devices_per_host = self.topology.size // self.topology.hosts
        states = 2 * 4 * self.anchors * (config.state_width + 1)
        loaded = need.weights * (devices_per_host if model > 1 else 1)
        read = need.weights * min(model, devices_per_host)
        return {
            "data": data,
            "model": model,
            "fits": "yes" if peak <= memory.MARGIN * device.gib * GIB else "out of memory",
            "weights": need.weights / GIB,
            "prefix": need.prefix / GIB,
            "working": need.working / GIB,
            "store": store / GIB,
            "peak": peak / GIB,
            "host_memory": max(loaded, states) / GIB,
            "read_per_host": read / GIB,
            "load_seconds_at_1_gb_per_second": read / 1e9,
            **self._times(model, shape, steps, need),
        }

    def _times(self, model: int, shape: packing.PackShape, steps: int, need: memory.Need) -> dict[str, Any]:
        """Return the operations of each device in 10¹², and the times if the device's speed is known."""
        device = self.topology.device
        config = self.work.subject.config
        dtype = self.settings.dtype
        anchors_per_device = math.ceil(self.anchors / self.topology.size)
        prefix_operations = operations.prefix_program(config, shape.prefix) / model
        step_operations = operations.packed_step(config, shape) / model
        # float32 keys: a multiplication and an addition for each of their numbers.
        search_operations = 2 * self.settings.queries * anchors_per_device * self.key_bytes // 4
        passes = 1 + self.settings.queries / self.anchors  # Queries are as long as anchors.
        total = passes * (prefix_operations + steps * step_operations) + search_operations
        estimated = {"tera_operations": total / 1e12}
        if not device.peak:
            return estimated
        # A ring all-reduce of the residual stream after attention and after the MLP of every block.
        sent_per_token = 4 * config.num_layers * (model - 1) / model * config.width * jnp.dtype(dtype).itemsize
        sent_per_step = sent_per_token * shape.rows * shape.width
        step_seconds = roofline(device, dtype, step_operations, need.weights + need.prefix, sent_per_step)
        prefix_seconds = roofline(device, dtype, prefix_operations, need.weights, sent_per_token * shape.prefix)
        reading_seconds = prefix_seconds + steps * step_seconds
        search_seconds = roofline(device, "float32", search_operations, self.key_bytes * anchors_per_device)
        anchors_per_second = self.anchors / reading_seconds
        packing_hosts = min(self.topology.hosts, self.topology.size // model)  # Others pack the same data shards.
        return estimated | {
            "ms_per_step": 1000 * step_seconds,
            "mib_sent_per_step": sent_per_step / 2**20,
            "anchors_per_second": anchors_per_second,
            "host_prompts_per_second": self.host.prompts_per_second(packing_hosts),
            "bottleneck": self.host.bottleneck(anchors_per_second, packing_hosts),
            "job_seconds": reading_seconds * passes + search_seconds,
        }


def _recommend(rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe the best of the meshes that fit; return "" if none fits."""
    fitting = [row for row in rows if row["fits"] == "yes"]
    if not fitting:
        return ""
    best = min(fitting, key=lambda row: row.get("job_seconds", row["model"]))
    reason = "fastest" if "job_seconds" in best else "smallest"
    return f"mesh.model={best['model']} (mesh.data={best['data']}), the {reason} that fits"
