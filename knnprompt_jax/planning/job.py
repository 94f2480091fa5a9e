"""Plan a job for every mesh of a topology: memory per device, a lower bound of the time, and the mesh to choose.

The time is a roofline: the longest of operations / peak, bytes / memory bandwidth, and collective bytes / bandwidth of the links. It is a
lower bound. Operations and collective bytes are arithmetic, because XLA's cost analysis counts the body of a loop once.
"""

import math
import pathlib
from typing import Any

import jax.numpy as jnp
from jax.errors import JaxRuntimeError
from jax.sharding import AbstractMesh

from knnprompt_jax import errors, files, parallel
from knnprompt_jax.lm import memory
from knnprompt_jax.lm import programs as lm_programs
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import sharding
from knnprompt_jax.planning import compiled, operations, targets, workload
from knnprompt_jax.settings import planning as settings_lib
from knnprompt_jax.store import store as store_lib

_OUT_OF_MEMORY = "out of memory"


def run(settings: settings_lib.PlanSettings) -> dict[str, Any]:
    """Plan the job, with a row for each mesh, the smallest `model` axis first. A mesh without enough memory is a row too.

    The recommended mesh has the smallest `model` axis that fits: splitting weights further costs time in collectives.

    Raises:
        UserError: impossible settings.
    """
    files.check_writable(pathlib.Path(settings.output), folder=True)
    target = targets.get(settings.topology, settings.compile)
    subject = workload.describe(settings.model)
    sizes = [
        size
        for size in range(1, target.size + 1)
        if not target.size % size and not sharding.uneven(subject.config, size)
    ]
    mesh = settings.mesh
    chosen = [size for size in sizes if mesh.model in (0, size) and mesh.data in (0, target.size // size)]
    if not chosen:
        raise errors.UserError(
            f"mesh.data={mesh.data}, mesh.model={mesh.model}: {target.name} has {target.size} devices; with the "
            f"heads of {subject.name}, mesh.model can be {errors.join_names(sizes)}; choose mesh.data=0"
        )
    work = workload.make(settings, subject)
    anchors = settings.anchors or work.prompts.num_prompts
    rows = [_plan_mesh(settings, target, subject.config, work, anchors, size) for size in chosen]
    is_compiled = settings.compile and target.device.platform == "tpu"
    best = next((row for row in rows if row["fits"] == "yes"), None)
    recommended = "none of these meshes"
    if all(row["fits"] == _OUT_OF_MEMORY for row in rows):
        recommended += f": {subject.name} needs more memory than {target.name} has"
    elif best:
        recommended = f"mesh.model={best['model']} (mesh.data={best['data']}), the smallest that fits"
    return {
        "ESTIMATED": "nothing was run",
        "model": subject.name,
        "devices": target.name,
        "anchors": anchors,
        "prefix_tokens": len(work.largest.prefix_P),
        "queries": settings.queries,
        "tokens_counted_by_the_tokenizer_of": work.tokenizer_name,
        "sizes": "GiB on each device",
        "working_memory": "from XLA's memory analysis" if is_compiled else "calculated, to within 10 %",
        **({"times": "a roofline, a lower bound: real steps take longer"} if target.device.peak else {}),
        "recommended": recommended,
        "meshes": rows,
    }


def roofline(
    device: targets.Device, dtype: str, operations: float, nbytes: float, collective_bytes: float = 0.0
) -> float:
    """Return the lower bound of the seconds that a device of known speed takes."""
    peak = device.peak_float32 if dtype == "float32" else device.peak
    return max(operations / peak, nbytes / device.bandwidth, collective_bytes / device.links)


def _plan_mesh(
    settings: settings_lib.PlanSettings,
    target: targets.Target,
    config: config_lib.DecoderConfig,
    work: workload.Workload,
    anchors: int,
    model: int,
) -> dict[str, Any]:
    """Return what the job takes on each device of a mesh: sizes in GiB, and times if the device's speed is known.

    The peak is the most at any time: while prompts are read, or while anchors are searched beside the weights.
    """
    data, device, error, margin = target.size // model, target.device, "", memory.MARGIN
    step_tokens = settings.batch or lm_programs.step_tokens(device.platform)
    shape, steps = workload.pack(work, anchors, step_tokens, data)
    need = memory.estimate(config, settings.dtype, shape, AbstractMesh((data, model), parallel.AXES), device.platform)
    reading = need.total
    if settings.compile and device.platform == "tpu":
        mesh, margin = compiled.mesh_of(target.devices(), data, model), 1.0
        try:
            analyses = compiled.pass_memory(config, settings.dtype, shape, mesh)
            reading = max(analysis.peak_memory_in_bytes for analysis in analyses.values())
        except JaxRuntimeError as failure:
            error = " ".join(str(failure).split())
    anchor_bytes = store_lib.anchor_bytes(settings.datastore, settings.distance, config, num_classes=2)
    anchors_per_device = math.ceil(anchors / target.size)
    # Classes of the anchors, and the head that encodes them, stand beside their keys.
    store = (anchor_bytes + 4) * anchors_per_device + 4 * config.vocab_size * config.state_width
    peak = max(reading, need.weights + store + int(settings.datastore.memory_mb * 2**20))
    fits = f"no program: {error[:300]}" if error else "yes"
    if "RESOURCE_EXHAUSTED" in error or (not error and peak > margin * device.memory):
        fits = _OUT_OF_MEMORY
    # A ring all-reduce of the residual stream after attention and after the MLP of every block.
    size = jnp.dtype(config_lib.DTYPES[settings.dtype]).itemsize
    sent_per_token = 2 * config.num_layers * 2 * (model - 1) / model * config.width * size
    sent_per_step = sent_per_token * shape.rows * shape.width
    row: dict[str, Any] = {
        "data": data,
        "model": model,
        "fits": fits,
        "weights": need.weights / targets.GIB,
        "prefix": need.prefix / targets.GIB,
        "working": (reading - need.weights - need.prefix) / targets.GIB,
        "store": store / targets.GIB,
        "peak": peak / targets.GIB,
    }
    if device.peak:
        prefix_operations = operations.prefix_program(config, shape.prefix) / model
        prefix_sent = sent_per_token * shape.prefix
        step_operations, step_bytes = operations.packed_step(config, shape) / model, need.weights + need.prefix
        numbers = anchor_bytes // jnp.dtype(settings.datastore.key_dtype).itemsize
        search_operations = 2 * settings.queries * anchors_per_device * numbers
        step_s = roofline(device, settings.dtype, step_operations, step_bytes, sent_per_step)
        reading_s = roofline(device, settings.dtype, prefix_operations, need.weights, prefix_sent) + steps * step_s
        search_s = roofline(device, "float32", search_operations, anchor_bytes * anchors_per_device)
        row |= {
            "ms_per_step": 1000 * step_s,
            "mib_sent_per_step": sent_per_step / 2**20,
            "anchors_per_second": anchors / reading_s,
            "job_seconds": reading_s * (1 + settings.queries / anchors) + search_s,
        }
    return row
