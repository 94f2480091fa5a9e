"""Where arrays lie: one mesh, one table of logical axes; and how several processes start.

Packed rows are split over the mesh axis `data`, weights over `model`, states and anchors over every device.
Axis types are Auto: the compiler places what is not said here.
"""

import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax import errors
from knnprompt_jax.models import config as config_lib

DATA, MODEL = AXES = ("data", "model")
# The logical axis of each dimension of a weight that is split; all other weights lie whole on every device.
WEIGHT_AXES = types.MappingProxyType(
    {
        "tokens": ("vocabulary",),
        "head_rows": ("vocabulary",),
        "head_bias": ("vocabulary",),
        "blocks.attention.q_kernel": (None, None, "heads"),
        "blocks.attention.q_bias": (None, "heads"),
        "blocks.attention.kv_kernel": (None, None, None, "kv_heads"),
        "blocks.attention.kv_bias": (None, None, "kv_heads"),
        "blocks.attention.out_kernel": (None, "heads"),
        "blocks.mlp.up_kernel": (None, None, "mlp"),
        "blocks.mlp.up_bias": (None, "mlp"),
        "blocks.mlp.gate_up_kernel": (None, None, None, "mlp"),
        "blocks.mlp.gate_up_bias": (None, None, "mlp"),
        "blocks.mlp.down_kernel": (None, "mlp"),
    }
)
# Seconds without a sign of life after which a process counts as dead and the others stop; and that one waits for the others at the end.
HEARTBEAT_TIMEOUT, SHUTDOWN_TIMEOUT = 40, 30


def start(auto: bool, address: str, num_processes: int, process_id: int) -> None:
    """Joins the processes of a run, before anything else touches a device; nothing is done where neither `auto` nor an address is given.

    With `auto` the scheduler (Slurm, Open MPI, TPU) says who they are; otherwise `address` is host:port of process 0.

    Raises:
        UserError: the options do not go together, or the other processes cannot be found.
    """
    given: dict[str, Any] = {"coordinator_address": address, "num_processes": num_processes, "process_id": process_id}
    if not auto:
        if not address:
            return
        if ":" not in address or not 0 <= process_id < num_processes:
            raise errors.UserError(
                f"distributed.address={address!r}, num_processes={num_processes}, process_id={process_id}: "
                "host:port of process 0 is needed, and a process_id from 0 to num_processes - 1"
            )
    timeouts: dict[str, Any] = {
        "heartbeat_timeout_seconds": HEARTBEAT_TIMEOUT,
        "shutdown_timeout_seconds": SHUTDOWN_TIMEOUT,
    }
    try:
        jax.distributed.initialize(**({} if auto else given), **timeouts)
    except (ValueError, RuntimeError) as error:
        raise errors.UserError(f"distributed: the processes of this run cannot be joined: {error}") from error


def is_main() -> bool:
    """Whether this is process 0, the one that writes and prints."""
    return jax.process_index() == 0


def wait_for_all(name: str) -> None:
    """Returns when every process has come here; `name` says where, should they differ."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def make_mesh(data: int = 0, model: int = 1) -> Mesh:
    """The mesh of data × model devices; `data` = 0 takes all there are.

    Raises:
        UserError: there are not as many devices, or some process would have none.
    """
    devices = jax.devices()
    divisors = [size for size in range(1, len(devices) + 1) if len(devices) % size == 0]
    if data < 0 or model < 1 or data * model > len(devices) or (not data and model not in divisors):
        raise errors.UserError(
            f"mesh.data={data}, mesh.model={model}: there are {len(devices)} devices; choose mesh.model from "
            f"{_listed(divisors)} with mesh.data=0 (all devices), or sizes whose product is at most {len(devices)}"
        )
    data = data or len(devices) // model
    if jax.process_count() > 1 and data * model < len(devices):
        raise errors.UserError(
            f"mesh.data={data}, mesh.model={model}: several processes use all of their {len(devices)} devices"
        )
    used = devices[: data * model]
    return jax.make_mesh((data, model), AXES, axis_types=(AxisType.Auto,) * 2, devices=used)


def check(config: config_lib.DecoderConfig, mesh: Mesh) -> None:
    """Raises UserError, with the sizes that would do, where the model's heads or MLP cannot be split over the mesh.

    Key and value heads may be fewer than the shards, if they divide them: then several shards keep the same one.
    """
    model = mesh.shape[MODEL]
    if uneven := _uneven(config, model):
        would = [size for size in range(1, len(jax.devices()) + 1) if not _uneven(config, size)]
        raise errors.UserError(
            f"mesh.model={model} does not divide the model's {' and '.join(uneven)}: choose from {_listed(would)}"
        )


def _uneven(config: config_lib.DecoderConfig, model: int) -> list[str]:
    sizes = {"heads": config.num_heads, "MLP columns": config.mlp_width}
    uneven = [f"{size} {name}" for name, size in sizes.items() if size % model]
    kv_heads = config.num_kv_heads
    fit = kv_heads % model == 0 or model % kv_heads == 0
    return uneven if fit or uneven else [f"{kv_heads} key and value heads"]


def splits_vocabulary(config: config_lib.DecoderConfig, mesh: Mesh) -> bool:
    """Whether the rows of embeddings and head are split; otherwise every device has all of them."""
    return config.vocab_size % mesh.shape[MODEL] == 0


def placement(config: config_lib.DecoderConfig, mesh: Mesh) -> Callable[[str], NamedSharding]:
    """Where each weight lies, by its path.

    JAX splits a dimension evenly or not at all. So a vocabulary that does not divide (GPT-2's 50,257 is odd) lies whole on
    every device, with its work, the logits, split by prompt instead: that is exact, and padding rows would be seen by all
    who read the head.
    """
    check(config, mesh)
    vocabulary = MODEL if splits_vocabulary(config, mesh) else None
    kv_heads = MODEL if config.num_kv_heads % mesh.shape[MODEL] == 0 else None
    mesh_axes = {"heads": MODEL, "kv_heads": kv_heads, "mlp": MODEL, "vocabulary": vocabulary, None: None}
    return lambda path: NamedSharding(mesh, P(*(mesh_axes[axis] for axis in WEIGHT_AXES.get(path, ()))))


def place(params: nnx.State, config: config_lib.DecoderConfig, mesh: Mesh) -> nnx.State:
    """The weights where they belong; those that lie there already are not copied."""
    place_of = placement(config, mesh)
    flat = {path: jax.device_put(leaf, place_of(".".join(map(str, path)))) for path, leaf in nnx.to_flat_state(params)}
    return nnx.from_flat_state(flat)


def put(array: np.ndarray, mesh: Mesh, spec: P) -> jax.Array:
    """An array that every process has (or has its own parts of) on the devices of the mesh."""
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])


def own_data_shards(mesh: Mesh) -> frozenset[int]:
    """The places along `data` where this process has a device."""
    own = jax.process_index()
    return frozenset(
        place for place, devices in enumerate(mesh.devices) if any(device.process_index == own for device in devices)
    )


def by_rows(mesh: Mesh, num_rows: int) -> NamedSharding:
    """Rows split over every device; where their number does not divide, each device has all of them."""
    return NamedSharding(mesh, P(AXES) if num_rows % mesh.size == 0 else P())


def replicate(tree: Any) -> Any:
    """The same arrays whole on every device of their mesh, so that each process can read them; others stay as they are."""

    def everywhere(array: jax.Array) -> jax.Array:
        sharding = getattr(array, "sharding", None)
        if not isinstance(sharding, NamedSharding) or sharding.is_fully_replicated:
            return array
        return jax.device_put(array, NamedSharding(sharding.mesh, P()))

    return jax.tree.map(everywhere, tree)


def _listed(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))
