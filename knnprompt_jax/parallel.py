"""The mesh of devices, the placement of arrays on it, and runs of several processes.

Packed rows are split over the mesh axis `data`, weights over `model` (`models.sharding`), states and anchors over every device.
Axis types are Auto: the compiler places everything else.
"""

import contextlib
import ctypes
import os
import pickle
import re
import signal
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax import errors

DATA, MODEL = AXES = ("data", "model")
HEARTBEAT_TIMEOUT = 40  # Seconds without a heartbeat after which a process counts as dead and the others stop.
SHUTDOWN_TIMEOUT = 30  # Seconds to wait for the other processes at the end.
# Errors of collective operations contain one of these when a participating process is gone.
_SIGNS = re.compile("Gloo|NCCL|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|heartbeat|Connection (closed|reset)")
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
_installed: list[Any] = []  # Keeps the handlers that C calls alive.


def start(auto: bool, address: str, num_processes: int, process_id: int) -> None:
    """Join the processes of a run before anything else touches a device; do nothing if no option is given.

    Args:
        auto: take everything else from the scheduler (Slurm, Open MPI, TPU).
        address: host:port of process 0.

    Raises:
        UserError: the other processes cannot be reached.
    """
    if not (auto or address or num_processes or process_id):
        return
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
        _end_in_one_line(jax.process_index(), jax.process_count())


def _end_in_one_line(process: int, num_processes: int) -> None:
    """Make this process of several end in one line when another is lost.

    A loss shows in two ways: a collective operation raises an error, or a thread of JAX calls abort(). JAX's client accepts a callback
    instead of the latter, but cannot call one written in Python (jaxlib 0.10: std::bad_cast). So abort()'s signal is caught in C,
    because Python's handlers only run after abort() has returned.
    """
    other = f"process {1 - process}" if num_processes == 2 else "another process (see JAX's lines above)"
    line = (
        f"error: process {process} of {num_processes}: {other} died; "
        "finished work is saved: rerun the same commands to resume\n"
    )

    def end(*_: Any) -> NoReturn:
        os.write(2, line.encode())
        os._exit(2)  # JAX would wait for the lost process otherwise.

    def report(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        if isinstance(error, jax.errors.JaxRuntimeError) and _SIGNS.search(str(error)):
            end()
        default(kind, error, trace)

    default, sys.excepthook = sys.excepthook, report
    handler = _Handler(end)
    _installed.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)


def is_main() -> bool:
    """Whether this is process 0, which writes and prints."""
    return jax.process_index() == 0


def wait_for_all(name: str) -> None:
    """Wait until every process reaches this call; processes that wait under different names raise."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def broadcast_from_main(array: np.ndarray) -> np.ndarray:
    """Broadcast process 0's array to every process."""
    return np.asarray(multihost_utils.broadcast_one_to_all(array)) if jax.process_count() > 1 else array


def call_in_main(function: Callable[[], Any]) -> Any:
    """Call `function` in process 0; return its result, or raise its UserError or OSError, in every process."""
    result = error = None
    if is_main():
        try:
            result = function()
        except (errors.UserError, OSError) as raised:
            error = raised
    if jax.process_count() > 1:
        content = np.frombuffer(pickle.dumps((result, error)), np.uint8)  # The processes of a run trust each other.
        num_bytes = int(broadcast_from_main(np.array(content.size)))
        # Each size compiles a program, so sizes are powers of two. Pickle ignores the filling.
        filled_up = np.resize(content, 1 << (num_bytes - 1).bit_length())
        result, error = pickle.loads(broadcast_from_main(filled_up).tobytes())
    if error:
        raise error
    return result


@contextlib.contextmanager
def enter_in_main(context: contextlib.AbstractContextManager) -> Iterator[Any]:
    """Enter `context` (for example a lock) in process 0, and raise its UserError in every process.

    Yields what `context` yields; in the other processes None.
    """
    with contextlib.ExitStack() as stack:
        entered = []
        call_in_main(lambda: entered.append(stack.enter_context(context)))
        yield entered[0] if entered else None


def make_mesh(data: int = 0, model: int = 1) -> Mesh:
    """Return the mesh of data × model devices; `data` = 0 uses all devices.

    Raises:
        UserError: there are too few devices, or a process would have none.
    """
    devices = jax.devices()
    divisors = [size for size in range(1, len(devices) + 1) if len(devices) % size == 0]
    if data < 0 or model < 1 or data * model > len(devices) or (not data and model not in divisors):
        owner = "this machine has" if jax.process_count() == 1 else "the processes of this run have"
        sizes, advice = f"mesh model={model}", f"choose from {errors.join_names(divisors)}"
        if data:
            sizes, advice = f"mesh data={data}, {sizes}", f"their product can be at most {len(devices)}"
        raise errors.UserError(f"{sizes}: {owner} {len(devices)} device{'s' * (len(devices) > 1)}; {advice}")
    data = data or len(devices) // model
    if jax.process_count() > 1 and data * model < len(devices):
        raise errors.UserError(
            f"--mesh.data={data}, --mesh.model={model}: several processes use all of their {len(devices)} devices"
        )
    used = devices[: data * model]
    return jax.make_mesh((data, model), AXES, axis_types=(AxisType.Auto,) * 2, devices=used)


def platform() -> str:
    """Return the platform of the mesh that a program is traced for, "cpu", "gpu" or "tpu"; by default the default device's."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device else jax.default_backend()


def put(array: np.ndarray, mesh: Mesh, spec: P) -> jax.Array:
    """Put an array on the devices of the mesh; every process has the array, or its own parts of it."""
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])


def local_data_shards(mesh: Mesh) -> frozenset[int]:
    """Return the indices along `data` at which this process has a device."""
    local = set(mesh.local_devices)
    return frozenset(place for place, devices in enumerate(mesh.devices) if local & set(devices))


def row_sharding(mesh: Mesh, num_rows: int) -> NamedSharding:
    """Return the sharding that splits rows over every device, or replicates them if they do not divide evenly."""
    return NamedSharding(mesh, P(AXES) if num_rows % mesh.size == 0 else P())


def put_rows(tree: Any, mesh: Mesh) -> Any:
    """Split the rows of host arrays over every device, or replicate them if they do not divide evenly."""
    return jax.tree.map(lambda array: put(array, mesh, row_sharding(mesh, len(array)).spec), tree)


def replicate(tree: Any) -> Any:
    """Replicate sharded arrays on every device of their mesh, so that each process can read them; return others unchanged."""

    def everywhere(array: jax.Array) -> jax.Array:
        sharding = getattr(array, "sharding", None)
        if not isinstance(sharding, NamedSharding) or sharding.is_fully_replicated:
            return array
        return jax.device_put(array, NamedSharding(sharding.mesh, P()))

    return jax.tree.map(everywhere, tree)
