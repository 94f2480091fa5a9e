"""Building a datastore: how fast the language-model pass is, beside the device's peak and beside other procedures."""

import dataclasses
import functools
import statistics
from collections.abc import Mapping
from typing import Any

from knnprompt_jax import lm
from knnprompt_jax.benchmark import (
    agreement,
    ceilings,
    flops,
    jax_peers,
    other_libraries,
    peer_process,
    peers,
    subjects,
    timing,
    workloads,
)
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import config as config_lib

OURS = "ours"


def run(settings: settings_lib.BenchmarkSettings, subject: subjects.Subject) -> dict[str, Any]:
    """Times whole passes over the workload; turns of ours, of the peers and of matrix products take each other's place."""
    workload = workloads.make(settings, subject)
    decoder, model = workloads.language_model(settings, subject)
    model.states(workload.prompts)
    first = dataclasses.replace(model.statistics)
    peak_bytes, peak_of = timing.peak_bytes()
    sampled = peers.sample(workload, settings)
    widths = model.step_tokens, subject.config.width, subject.config.mlp_width
    products = ceilings.MatrixProducts(config_lib.DTYPES[settings.dtype], settings.ceiling_side, widths)
    turns = {OURS: timing.stopwatch(lambda: model.states(workload.prompts))}
    turns |= jax_peers.turns(decoder, sampled, settings)
    with other_libraries.start(decoder, subject, sampled, settings) as (processes, absent):
        turns |= {name: functools.partial(process.ask, name) for name, process in processes.items()}
        rounds = timing.interleave(turns | products.turns, settings.repetitions)
        compared = agreement.measure(model, sampled, settings, processes) if settings.agreement else {}
    seconds = {name: statistics.median(values) for name, values in rounds.items()}
    prompts = {name: sampled.num_prompts(name) for name in turns} | {OURS: workload.prompts.num_prompts}
    return {
        "workload": {
            "name": workload.name,
            "anchors": workload.prompts.num_prompts,
            "prefix_tokens": len(workload.largest.prefix_P),
            "suffix_tokens": workload.num_suffix_tokens,
            "truncated": workload.prompts.num_truncated,
        },
        "fill": first.fill,
        "packed_tokens": first.suffix_tokens,
        "step_tokens": model.step_tokens,
        "compilations": first.compilations,
        "compile_seconds": first.compile_seconds,
        "peak_bytes": peak_bytes,
        "peak_bytes_of": peak_of,
        **_speed(workload, model, seconds[OURS], products.rates(seconds)),
        "peers": _compare(prompts, seconds),
        "absent": absent,
        "llama": _llama(subject, settings) if processes.keys() & {*peer_process.LLAMA.peers} else {},
        "agreement": compared,
        "seconds": rounds,
    }


def _llama(subject: subjects.Subject, settings: settings_lib.BenchmarkSettings) -> dict[str, Any]:
    """What must be said beside llama.cpp's numbers."""
    return {
        "version": other_libraries.llama_version(settings),
        "threads": other_libraries.num_threads(settings),
        "stored": list(subject.stored),
        "quantised": subject.is_quantised,
        "dtype_of_others": settings.dtype,
    }


def _speed(
    workload: workloads.Workload, model: lm.LanguageModel, elapsed: float, products: Mapping[str, float]
) -> dict[str, Any]:
    """Of ours, beside the FLOP/s of matrix `products` on one device."""
    devices, groups = model.mesh.size, workload.prompts.groups
    peak, at_widths = max(products.values()) * devices, [*products.values()][-1] * devices
    needed, all_blocks = flops.needed(model.config, groups), flops.all_blocks(model.config, groups)
    return {
        "anchors_per_second": workload.prompts.num_prompts / elapsed,
        "suffix_tokens_per_second": workload.num_suffix_tokens / elapsed,
        "devices": devices,
        "matrix_products": products,
        "peak_flops_per_second": peak,
        "flops_needed": needed,
        "flops_per_second": needed / elapsed,
        "share_of_peak": needed / elapsed / peak,
        "widths_flops_per_second": at_widths,
        "share_of_widths": needed / elapsed / at_widths,
        "flops_all_blocks": all_blocks,
        "share_of_peak_all_blocks": all_blocks / elapsed / peak,
    }


def _compare(prompts: Mapping[str, int], seconds: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The speed of each, and how many times faster ours is."""
    rates = {name: count / seconds[name] for name, count in prompts.items()}
    return {
        name: {"prompts": prompts[name], "prompts_per_second": rate, "ours_is_times_faster": rates[OURS] / rate}
        for name, rate in rates.items()
    }
