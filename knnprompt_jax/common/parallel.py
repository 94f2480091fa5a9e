"""The mesh of devices, the placement of arrays on it and their sizes, and jobs of several processes.

Packed rows are split over the mesh axis `data`, weights over `model` (`models.sharding`), states and anchors over every
device. Axis types are Auto: the compiler chooses the sharding of everything else.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import pickle
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import distributed  # Its store has no public name.
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax.common import errors

DATA, MODEL = AXES = ("data", "model")
_PREFIX = "knnprompt_jax"  # Of the names of messages in the store of `jax.distributed`.
_PART = 2**20  # Bytes of a message that are sent together.
_WAIT = 10**9  # Milliseconds; the heartbeat ends the wait for a lost process.
_MESSAGES = itertools.count()
_deleted = [0]  # The number of the first message that is not deleted.
HEARTBEAT_TIMEOUT = 40  # Seconds without a heartbeat after which a process counts as dead and the others stop.
SHUTDOWN_TIMEOUT = 30  # Seconds to wait for the other processes at the end.
_CHOOSE_DEVICES = ("JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES")
_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
# An error of a collective operation contains one of these when a participating process is gone or communication fails.
_LOST_PROCESS = re.compile("Gloo|NCCL|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|heartbeat|Connection (closed|reset)")


def start(auto: bool, address: str, num_processes: int, process_id: int) -> None:
    """Join the processes of a job before anything else touches a device; do nothing if no option is given.

    Args:
        auto: take everything else from the scheduler (Slurm, Open MPI, TPU).
        address: host:port of process 0.
        num_processes: the number of processes of the job.
        process_id: the index of this process.

    Raises:
        UserError: the other processes cannot be reached.
    """
    if not (auto or address or num_processes or process_id):
        return
    options: dict[str, Any] = {"heartbeat_timeout_seconds": HEARTBEAT_TIMEOUT}
    options["shutdown_timeout_seconds"] = SHUTDOWN_TIMEOUT
    if not auto:
        options |= {"coordinator_address": address, "num_processes": num_processes, "process_id": process_id}
    if (not auto or _is_alone_on_host()) and "JAX_LOCAL_DEVICE_IDS" not in os.environ:
        options["local_device_ids"] = []  # All devices. If None, JAX uses one device per task of Slurm or Open MPI.
    try:
        jax.distributed.initialize(**options)
    except (ValueError, RuntimeError, KeyError) as error:
        names = _SLURM if auto else ("JAX_LOCAL_DEVICE_IDS",)
        given = ", ".join(f"{name}={os.environ.get(name, '(missing)')}" for name in names)
        reason = f"the processes of this run cannot be joined: {errors.one_line(error)} ({given})"
        advice = "start by srun or mpirun, or give --distributed.address, num_processes and process_id"
        raise errors.UserError(f"{reason}; {advice}") from error
    if jax.process_count() > 1:
        _exit_when_a_process_is_lost()


def _is_alone_on_host() -> bool:
    """Return whether Open MPI or Slurm started a single process on each host."""
    if size := os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE"):
        return size == "1"
    num_nodes = os.environ.get("SLURM_STEP_NUM_NODES")
    return num_nodes is not None and num_nodes == os.environ.get("SLURM_NTASKS")


def _exit_when_a_process_is_lost() -> None:
    """Install an exception hook that reports a lost process in one line and exits this process with status 2.

    The line ends with JAX's message, because slow processes and faults of a network raise the same errors.
    """
    default = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        if not (isinstance(error, jax.errors.JaxRuntimeError) and _LOST_PROCESS.search(str(error))):
            default(kind, error, trace)
            return
        process = f"process {jax.process_index()} of {jax.process_count()}"
        message = "another process died or did not answer, or communication failed"
        advice = "finished work is saved: rerun the same command to resume"
        reason = errors.shortened(errors.one_line(error))[:300]
        print(f"error: {process}: {message}; {advice} ({reason})", file=sys.stderr, flush=True)
        os._exit(2)  # A normal exit would wait for the lost process.

    sys.excepthook = report


def find_devices() -> list[jax.Device]:
    """Return all devices; raise UserError if this machine has none of a platform that JAX_PLATFORMS names."""
    try:
        for name in filter(None, os.environ.get("JAX_PLATFORMS", "").split(",")):
            jax.devices(name)
        return jax.devices()
    except (RuntimeError, AssertionError) as error:
        given = " ".join(f"{name}={os.environ[name]}" for name in _CHOOSE_DEVICES if name in os.environ)
        raise errors.UserError(f"{given}: no such devices; unset this ({errors.one_line(error)})") from error


def is_main() -> bool:
    """Whether this is process 0, the one that writes and prints."""
    find_devices()
    return jax.process_index() == 0


def wait_for_all(name: str) -> None:
    """Wait until every process reaches this call; processes that wait under different names raise."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def broadcast_from_main(array: np.ndarray) -> np.ndarray:
    """Broadcast process 0's array to every process."""
    if jax.process_count() == 1:
        return array
    return np.asarray(multihost_utils.broadcast_one_to_all(array))


def largest_of_all(numbers: Sequence[int]) -> list[int]:
    """Return the maximum of each number over all processes."""
    if jax.process_count() == 1:
        return list(numbers)
    message = next(_MESSAGES)
    _store().key_value_set(f"{_PREFIX}/{message}/{jax.process_index()}", json.dumps(list(map(int, numbers))))
    names = [f"{_PREFIX}/{message}/{process}" for process in range(jax.process_count())]
    by_process = [json.loads(_store().blocking_key_value_get(name, _WAIT)) for name in names]
    if is_main():  # Every process has read all messages before this one.
        for number in range(_deleted[0], message):
            _store().key_value_delete(f"{_PREFIX}/{number}")
        _deleted[0] = message
    return [max(column) for column in zip(*by_process, strict=True)]


def call_in_main(function: Callable[[], Any]) -> Any:
    """Call `function` in process 0; return its result, or raise its UserError or OSError, in every process."""
    result = None
    error = None
    if is_main():
        try:
            result = function()
        except (errors.UserError, OSError) as raised:
            error = raised
    result, error = broadcast_object((result, error))
    if error:
        raise error
    return result


def broadcast_object(value: Any) -> Any:
    """Broadcast process 0's object to every process, pickled: the processes of a job trust each other.

    A small object goes through the store of `jax.distributed`, because devices would first run what is queued on them.
    """
    if jax.process_count() == 1:
        return value
    message = f"{_PREFIX}/{next(_MESSAGES)}"
    if is_main():
        content = pickle.dumps(value)
        parts = [content[start : start + _PART] for start in range(0, len(content), _PART)]
        for number, part in enumerate(parts):
            _store().key_value_set_bytes(f"{message}/{number}", part)
        _store().key_value_set(f"{message}/count", str(len(parts)))
        return value
    count = int(_store().blocking_key_value_get(f"{message}/count", _WAIT))
    names = [f"{message}/{number}" for number in range(count)]
    return pickle.loads(b"".join(_store().blocking_key_value_get_bytes(name, _WAIT) for name in names))


def _store() -> Any:
    """Return the client of the key-value store that the processes of a job share."""
    return distributed.global_state.client


def delayed(items: Iterable[Any], number: int) -> Iterator[Any]:
    """Yield each item after `number` more items are computed, or all."""
    waiting: collections.deque[Any] = collections.deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > number:
            yield waiting.popleft()
    yield from waiting


def ahead(items: Iterable[Any], size: int) -> Iterator[Any]:
    """Return an iterator of items; a thread computes the next `size` items in advance, and begins at once.

    The iterator raises the exceptions of the thread.
    """
    iterator = iter(items)
    end = object()
    thread = concurrent.futures.ThreadPoolExecutor(1)
    following = collections.deque(thread.submit(next, iterator, end) for _ in range(size))

    def take() -> Iterator[Any]:
        with thread:
            while (item := following.popleft().result()) is not end:
                following.append(thread.submit(next, iterator, end))
                yield item

    return take()


@contextlib.contextmanager
def enter_in_main(context: contextlib.AbstractContextManager) -> Iterator[Any]:
    """Enter `context` (for example a lock) in process 0, and raise its UserError in every process.

    Yields:
        what `context` yields in process 0, and None in the other processes.
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
    devices = find_devices()
    least = len(devices) if jax.process_count() > 1 or not data else 1
    size = (data or len(devices) // max(1, model)) * model
    if data < 0 or model < 1 or not least <= size <= len(devices):
        advice = "give sizes whose product is at most that; data=0, and several processes, use every device"
        raise errors.UserError(f"mesh data={data}, mesh model={model}: there are {len(devices)} devices; {advice}")
    return make_mesh_on(devices[:size], size // model, model)


def make_mesh_on(devices: Sequence[jax.Device], data: int, model: int) -> Mesh:
    """Return the mesh of data × model given devices."""
    return jax.make_mesh((data, model), AXES, axis_types=(AxisType.Auto,) * 2, devices=devices)


def platform() -> str:
    """Return the platform ("cpu", "gpu", "tpu") of the mesh that a program is traced for, or the default one."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device else jax.default_backend()


def put(array: np.ndarray, mesh: Mesh, spec: P) -> jax.Array:
    """Put an array on the devices of the mesh; every process has the array, or its own parts of it."""
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])


def local_data_shards(mesh: Mesh) -> frozenset[int]:
    """Return the indices along `data` at which this process has a device."""
    local = set(mesh.local_devices)
    return frozenset(index for index, devices in enumerate(mesh.devices) if local & set(devices))


def row_sharding(mesh: Mesh, num_rows: int) -> NamedSharding:
    """Return the sharding that splits rows over every device, or replicates them if they do not divide evenly."""
    return NamedSharding(mesh, P(AXES) if num_rows % mesh.size == 0 else P())


def put_rows(tree: Any, mesh: Mesh) -> Any:
    """Put host arrays on the devices of the mesh, sharded by `row_sharding`."""
    return jax.tree.map(lambda array: put(array, mesh, row_sharding(mesh, len(array)).spec), tree)


def replicate(tree: Any) -> Any:
    """Replicate sharded arrays on all devices of their mesh, so that each process has them; keep others unchanged."""
    return jax.tree.map(_replicated, tree)


def _replicated(array: jax.Array) -> jax.Array:
    sharding = getattr(array, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.is_fully_replicated:
        return array
    return jax.device_put(array, NamedSharding(sharding.mesh, P()))


def round_up(number: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is at least `number`."""
    return -(-number // multiple) * multiple


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`, which is at least 1."""
    return 1 << (number - 1).bit_length()
