"""Building a datastore: how fast the language-model pass is, beside the device's peak and beside other procedures."""

import dataclasses
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
    products = ceilings.MatrixProducts(
        config_lib.DTYPES[settings.dtype], settings.ceiling_side, model.step_tokens, subject.config
    )
    ours = peers.Peer(workload.prompts.num_prompts, timing.stopwatch(lambda: model.states(workload.prompts)))
    with other_libraries.start(decoder, subject, sampled, settings) as running:
        contenders = {OURS: ours, **jax_peers.make(decoder, sampled, settings), **running.ready}
        turns = {name: peer.turn for name, peer in contenders.items()} | products.turns
        rounds = timing.interleave(turns, settings.repetitions)
        compared = agreement.measure(model, sampled, settings, running) if settings.agreement else {}
    seconds = {name: statistics.median(values) for name, values in rounds.items()}
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
        **_speed(workload, model, seconds, products),
        "peers": _compare(contenders, seconds),
        "absent": running.absent,
        "llama": _llama(subject, settings, running),
        "agreement": compared,
        "seconds": rounds,
    }


def _llama(
    subject: subjects.Subject, settings: settings_lib.BenchmarkSettings, running: other_libraries.Running
) -> dict[str, Any]:
    """What must be said beside llama.cpp's numbers; empty if it did not run."""
    if not running.llama_version:
        return {}
    return {
        "version": running.llama_version,
        "threads": other_libraries.num_threads(settings),
        "stored": list(subject.stored),
        "quantised": subject.is_quantised,
        "dtype_of_others": settings.dtype,
    }


def _speed(
    workload: workloads.Workload,
    model: lm.LanguageModel,
    seconds: Mapping[str, float],
    products: ceilings.MatrixProducts,
) -> dict[str, Any]:
    elapsed, devices = seconds[OURS], model.mesh.size
    peak, at_widths = products.peak(seconds) * devices, products.at_widths(seconds) * devices
    needed = flops.needed(model.config, workload.prompts.groups)
    all_blocks = flops.all_blocks(model.config, workload.prompts.groups)
    return {
        "anchors_per_second": workload.prompts.num_prompts / elapsed,
        "suffix_tokens_per_second": workload.num_suffix_tokens / elapsed,
        "devices": devices,
        "matrix_products": products.rates(seconds),
        "peak_flops_per_second": peak,
        "flops_needed": needed,
        "flops_per_second": needed / elapsed,
        "share_of_peak": needed / elapsed / peak,
        "widths_flops_per_second": at_widths,
        "share_of_widths": needed / elapsed / at_widths,
        "flops_all_blocks": all_blocks,
        "share_of_peak_all_blocks": all_blocks / elapsed / peak,
    }


def _compare(contenders: Mapping[str, peers.Peer], seconds: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Every contender's speed, and how many times faster ours is."""
    rates = {name: peer.prompts / seconds[name] for name, peer in contenders.items()}
    return {
        name: {
            "prompts": contenders[name].prompts,
            "prompts_per_second": rate,
            "ours_is_times_faster": rates[OURS] / rate,
        }
        for name, rate in rates.items()
    }
