"""Measure how fast this machine reads prompts, beside the peak of its devices."""

import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from knnprompt_jax.cli.command_settings import BenchmarkSettings
from knnprompt_jax.cli.shared_settings import MeshOptions
from knnprompt_jax.common import parallel
from knnprompt_jax.devices import host_speed, machine, operations, workload
from knnprompt_jax.devices.checks import Inputs
from knnprompt_jax.inference import states
from knnprompt_jax.models import registry

OURS = "ours"
_COLUMNS = ("model", "dtype", "anchors", "anchors_per_second", "share_of_peak", "compile_seconds")
_LARGE = 3e9  # Parameters from which weights are bfloat16.
_ANCHORS_ON_CPUS = 256
_ANCHORS_PER_ACCELERATOR = 4096  # Enough to fill several steps of each data shard.


def run(settings: BenchmarkSettings) -> dict[str, Any]:
    """Build the workload of a benchmark; time its first pass, then whole passes, then the host's part of a pass.

    Raises:
        UserError: impossible settings, or a model that cannot be loaded.
    """
    work = workload.build(settings, workload.describe(settings.model), settings.anchors)
    record = first_pass(work) | measure(settings, work)[0]
    host = host_speed.measure(work, work.model.step_tokens, work.model.mesh.shape[parallel.DATA])
    return record | {
        "host_prompts_per_second": host.prompts_per_second(),
        "bottleneck": host.bottleneck(record["anchors_per_second"]),
        "host_stages": host.table(),
    }


def first_pass(work: workload.Workload) -> dict[str, Any]:
    """Read all prompts once; return the time of compilation and the peak memory so far."""
    states.read(work.model, work.prompts)
    peak_bytes, kind = machine.peak_bytes()
    return {
        "compilations": work.model.statistics.compilations,
        "compile_seconds": work.model.statistics.compile_seconds,
        f"peak_mb_of_{kind}_memory": peak_bytes / 1e6,
    }


def measure(
    settings: BenchmarkSettings,
    work: workload.Workload,
    contenders: Mapping[str, machine.Turn] = types.MappingProxyType({}),
) -> tuple[dict[str, Any], dict[str, float]]:
    """Time whole passes in turn with matrix products and contenders.

    Returns:
        The record of the passes, and the median seconds of a turn of each contender.
    """
    model = work.model
    product, product_operations = machine.matrix_products(jnp.dtype(settings.dtype))
    turns = {OURS: machine.stopwatch(lambda: states.read(model, work.prompts)), "product": product, **contenders}
    seconds = machine.medians(turns, settings.repetitions)
    required = operations.required(model.config, work.prompts.groups) / seconds[OURS]
    # CPU devices of a process share its cores.
    num_devices = jax.process_count() if jax.default_backend() == "cpu" else model.mesh.size
    peak = num_devices * product_operations / seconds["product"]
    num_prompts = work.prompts.num_prompts
    suffix_tokens = sum(len(suffix) for group in work.prompts.groups for suffix in group.suffixes)
    return {
        "model": work.subject.name,
        "weights": "random" if work.subject.path is None else "its own",
        "dtype": settings.dtype,
        "anchors": num_prompts,
        "prefix_tokens": len(work.largest.prefix_P),
        "tokens_per_suffix": suffix_tokens / num_prompts,
        "tokenizer": work.tokenizer_name,
        "truncated": work.prompts.num_truncated,
        "anchors_per_second": num_prompts / seconds[OURS],
        "peak_gflop_per_second": peak / 1e9,
        "share_of_peak": required / peak,
    }, seconds


def measure_shape(subject: workload.ModelShape, inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Measure passes of a published shape over prompts of random tokens."""
    del inputs
    dtype = "bfloat16" if registry.num_parameters(subject.config) >= _LARGE else "float32"
    settings = BenchmarkSettings(model=subject.name, dtype=dtype, mesh=MeshOptions(model=0))
    is_cpu = jax.default_backend() == "cpu"
    num_anchors = _ANCHORS_ON_CPUS if is_cpu else _ANCHORS_PER_ACCELERATOR * jax.device_count()
    work = workload.build_random(settings, subject, num_anchors)
    record = first_pass(work) | measure(settings, work)[0]
    kernel = "yes" if work.model.execution.has_kernel else "no"
    yield {**{name: record[name] for name in _COLUMNS}, "attention_kernel": kernel}
