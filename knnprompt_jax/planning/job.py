"""Plan a job for every mesh of a topology: memory per device, a lower bound of the time, and the mesh to choose.

The time is a roofline: the longest of operations / peak, bytes / memory bandwidth, and collective bytes / bandwidth of the links. It is a
lower bound. Operations and collective bytes are arithmetic, because XLA's cost analysis counts the body of a loop once.
"""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax.errors import JaxRuntimeError
from jax.sharding import AbstractMesh

from knnprompt_jax import errors, files, parallel
from knnprompt_jax.lm import memory
from knnprompt_jax.lm import programs as lm_programs
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import sharding
from knnprompt_jax.planning import compiled, operations, report, targets, workload
from knnprompt_jax.planning import settings as settings_lib
from knnprompt_jax.prompts import packing
from knnprompt_jax.store import store as store_lib


def run(settings: settings_lib.PlanSettings) -> dict[str, Any]:
    """Plan the job, with a row for each mesh, the smallest `model` axis first. A mesh without enough memory is a row too.

    The recommended mesh has the smallest `model` axis that fits: splitting weights further costs time in collectives.

    Raises:
        UserError: impossible settings.
    """
    files.check_writable(pathlib.Path(settings.output), folder=True)
    target = targets.get(settings.topology, settings.compile)
    subject = workload.describe(settings.model, settings.revision)
    sizes = [
        size for size in range(1, target.size + 1) if not target.size % size and sharding.divides(subject.config, size)
    ]
    chosen = [size for size in sizes if settings.mesh.model in (0, size)]
    if not chosen or settings.mesh.data not in (0, target.size // chosen[0]):
        raise errors.UserError(
            f"mesh.data={settings.mesh.data}, mesh.model={settings.mesh.model}: {target.name} has {target.size} devices; with the "
            f"heads of {subject.name}, mesh.model can be {parallel.listed(sizes)}; choose mesh.data=0"
        )
    work = workload.make(settings, subject)
    anchors = settings.anchors or work.prompts.num_prompts
    step_tokens = settings.batch or lm_programs.step_tokens(target.device.platform)
    rows = []
    for model in chosen:
        shape, steps = workload.pack(work, anchors, step_tokens, target.size // model)
        rows.append(_plan_mesh(settings, target, subject.config, shape, steps, anchors, model))
    return {
        "estimated": True,
        "environment": report.environment(),
        "settings": settings.to_dict(),
        "model": subject.name,
        "tokenizer": work.tokenizer_name,
        "prefix_tokens": len(work.largest.prefix_P),
        "anchors": anchors,
        "meshes": rows,
        "recommended": next((row for row in rows if row["fits"] == "yes"), None),
    }


def render(plan: Mapping[str, Any]) -> str:
    """Return the table of meshes, the recommended mesh and the assumptions of a plan."""
    settings, target, rows = plan["settings"], targets.get(plan["settings"]["topology"], compile=False), plan["meshes"]
    device, best = target.device, plan["recommended"]
    is_compiled = settings["compile"] and device.platform == "tpu"
    source = "XLA's memory analysis" if is_compiled else "arithmetic, right to a tenth"
    notes = f"Weights to peak: GiB on each device; working memory by {source}."
    if device.peak:
        notes += " Times are a roofline, a lower bound (docs/accelerators.md). Real steps take longer."
    advice = f"Recommended: none of these meshes: {plan['model']} needs more memory than {target.name} has."
    if best:
        advice = f"Recommended: mesh.model={best['model']} (mesh.data={best['data']}), the smallest that fits."
    return "\n\n".join(
        [
            f"ESTIMATED, NOTHING WAS RUN: {plan['model']}, {settings['dtype']}, on {target.name}\n"
            f"task {settings['task']}: {plan['anchors']:,} anchors after a prefix of {plan['prefix_tokens']:,} tokens, "
            f"{settings['queries']:,} queries; tokens counted by the tokenizer of {plan['tokenizer']}",
            report.table([{name: value for name, value in row.items() if name != "error"} for row in rows]),
            notes,
            *(f"{row['data']} × {row['model']}: {row['error'][:300]}" for row in rows if row["error"]),
            advice,
        ]
    )


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
    shape: packing.PackShape,
    steps: int,
    anchors: int,
    model: int,
) -> dict[str, Any]:
    """Return what the job takes on each device of a mesh: sizes in GiB, and times if the device's speed is known.

    The peak is the most at any time: while prompts are read, or while anchors are searched beside the weights.
    """
    data, device, error, margin = target.size // model, target.device, "", memory.MARGIN
    need = memory.of_pass(config, settings.dtype, shape, AbstractMesh((data, model), parallel.AXES), device.platform)
    reading = need.total
    if settings.compile and device.platform == "tpu":
        mesh, margin = compiled.mesh_of(target.devices(), data, model), 1.0
        try:
            analyses = compiled.of_pass(config, settings.dtype, shape, mesh)
            reading = max(analysis.peak_memory_in_bytes for analysis in analyses.values())
        except JaxRuntimeError as failure:
            error = " ".join(str(failure).split())
    anchor_bytes = store_lib.anchor_bytes(
        settings.datastore, settings.distance, config.logit_cap, config.vocab_size, config.state_width, 2
    )
    anchors_per_device = math.ceil(anchors / target.size)
    # Classes of the anchors, and the head that encodes them, stand beside their keys.
    store = (anchor_bytes + 4) * anchors_per_device + 4 * config.vocab_size * config.state_width
    peak = max(reading, need.weights + store + int(settings.datastore.memory_mb * 2**20))
    fits = "no program" if error else "yes"
    if "RESOURCE_EXHAUSTED" in error or (not error and peak > margin * device.memory):
        fits = "out of memory"
    # A ring all-reduce of the residual stream after attention and after the MLP of every block.
    size = jnp.dtype(config_lib.activations(config_lib.DTYPES[settings.dtype])).itemsize
    sent_per_token = 2 * config.num_layers * 2 * (model - 1) / model * config.width * size
    sent_per_step = sent_per_token * shape.rows * shape.width
    sizes = {
        "weights": need.weights,
        "prefix": need.prefix,
        "working": reading - need.weights - need.prefix,
        "store": store,
        "peak": peak,
    }
    row = {"data": data, "model": model, "fits": fits, "error": error}
    row |= {name: size / targets.GIB for name, size in sizes.items()}
    if device.peak:
        prefix_operations, prefix_sent = (
            operations.of_prefix(config, shape.prefix) / model,
            sent_per_token * shape.prefix,
        )
        step_operations, step_bytes = operations.of_step(config, shape) / model, need.weights + need.prefix
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
