"""Where arrays lie: one mesh for all of them; and how several processes start.

Packed rows are split over the mesh axis `data`, weights over `model` (`models.sharding`), states and anchors over every device.
Axis types are Auto: the compiler places what is not said here.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax import errors, process_loss

DATA, MODEL = AXES = ("data", "model")
HEARTBEAT_TIMEOUT = 40  # Seconds without a sign of life after which a process counts as dead and the others stop.
SHUTDOWN_TIMEOUT = 30  # Seconds that a process waits for the others at the end.
_MESSAGE = 4096  # Bytes of an error that every process is told of.


def start(auto: bool, address: str, num_processes: int, process_id: int) -> None:
    """Joins the processes of a run, before anything else touches a device; nothing is done where neither `auto` nor an address is given.

    With `auto` the scheduler (Slurm, Open MPI, TPU) says who they are; otherwise `address` is host:port of process 0.

    Raises:
        UserError: the options do not go together, or the other processes cannot be found.
    """
    if not auto and not address:
        return
    if not auto and (":" not in address or not 0 <= process_id < num_processes):
        raise errors.UserError(
            f"distributed.address={address!r}, num_processes={num_processes}, process_id={process_id}: "
            "host:port of process 0 is needed, and a process_id from 0 to num_processes - 1"
        )
    options: dict[str, Any] = {
        "heartbeat_timeout_seconds": HEARTBEAT_TIMEOUT,
        "shutdown_timeout_seconds": SHUTDOWN_TIMEOUT,
    }
    if not auto:
        options |= {"coordinator_address": address, "num_processes": num_processes, "process_id": process_id}
    try:
        jax.distributed.initialize(**options)
    except (ValueError, RuntimeError) as error:
        raise errors.UserError(f"distributed: the processes of this run cannot be joined: {error}") from error
    if jax.process_count() > 1:
        process_loss.end_in_one_line(jax.process_index(), jax.process_count())


def is_main() -> bool:
    """Whether this is process 0, the one that writes and prints."""
    return jax.process_index() == 0


def wait_for_all(name: str) -> None:
    """Returns when every process has come here; `name` says where, should they differ."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def from_main(array: np.ndarray) -> np.ndarray:
    """The array that process 0 has, for every process."""
    return np.asarray(multihost_utils.broadcast_one_to_all(array)) if jax.process_count() > 1 else array


def call_in_main(function: Callable[[], Any]) -> None:
    """Calls `function` in process 0; a UserError that it raises there is raised in every process."""
    told = ""
    if is_main():
        try:
            function()
        except errors.UserError as error:
            told = str(error)
    if jax.process_count() > 1:
        text = np.frombuffer(told.encode("utf-8", "backslashreplace")[:_MESSAGE].ljust(_MESSAGE), np.uint8)
        told = from_main(text).tobytes().decode("utf-8", "ignore").rstrip()
    if told:
        raise errors.UserError(told)


@contextlib.contextmanager
def by_main(context: contextlib.AbstractContextManager) -> Iterator[None]:
    """Process 0 is within `context`, a lock for example; a UserError on entering is raised in every process."""
    with contextlib.ExitStack() as stack:
        call_in_main(lambda: stack.enter_context(context))
        yield


def make_mesh(data: int = 0, model: int = 1) -> Mesh:
    """The mesh of data × model devices; `data` = 0 takes all there are. Raises UserError where there are too few, or a process has none."""
    devices = jax.devices()
    divisors = [size for size in range(1, len(devices) + 1) if len(devices) % size == 0]
    if data < 0 or model < 1 or data * model > len(devices) or (not data and model not in divisors):
        raise errors.UserError(
            f"mesh.data={data}, mesh.model={model}: there are {len(devices)} devices; choose mesh.model from "
            f"{listed(divisors)} with mesh.data=0 (all devices), or sizes whose product is at most {len(devices)}"
        )
    data = data or len(devices) // model
    if jax.process_count() > 1 and data * model < len(devices):
        raise errors.UserError(
            f"mesh.data={data}, mesh.model={model}: several processes use all of their {len(devices)} devices"
        )
    used = devices[: data * model]
    return jax.make_mesh((data, model), AXES, axis_types=(AxisType.Auto,) * 2, devices=used)


def platform() -> str:
    """Of the devices of the mesh for which a program is traced, "cpu", "gpu" or "tpu"; outside of one, of the default device."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device else jax.default_backend()


def put(array: np.ndarray, mesh: Mesh, spec: P) -> jax.Array:
    """An array that every process has (or has its own parts of) on the devices of the mesh."""
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])


def local_data_shards(mesh: Mesh) -> frozenset[int]:
    """The places along `data` where this process has a device."""
    local = set(mesh.local_devices)
    return frozenset(place for place, devices in enumerate(mesh.devices) if local & set(devices))


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


def listed(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))
