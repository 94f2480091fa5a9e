"""Building a datastore: how fast the language-model pass is, beside the device's peak and beside other procedures."""

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

from knnprompt_jax import lm
from knnprompt_jax.benchmark import ceilings, flops, peers, timing, workloads
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import config as config_lib

OURS = "ours"


def run(settings: settings_lib.BenchmarkSettings, config: config_lib.DecoderConfig) -> dict[str, Any]:
    """Times whole passes over the workload; turns of ours, of the peers and of matrix products take each other's place."""
    workload = workloads.make(settings, config)
    decoder, model = workloads.language_model(settings, config)
    model.states(workload.prompts)
    first = dataclasses.replace(model.statistics)
    peak_bytes, peak_of = timing.peak_bytes()
    sampled = peers.sample(workload, settings)
    products = ceilings.MatrixProducts(lm.DTYPES[settings.dtype], settings.ceiling_side, model.step_tokens, config)
    ours = peers.Peer(workload.prompts.num_prompts, timing.stopwatch(lambda: model.states(workload.prompts)))
    with peers.in_torch(decoder, sampled, settings) as (torch_peers, process):
        contenders = {OURS: ours, **peers.in_jax(decoder, sampled, settings), **torch_peers}
        turns = {name: peer.turn for name, peer in contenders.items()} | products.turns
        rounds = timing.interleave(turns, settings.repetitions)
        agreement = peers.agreement(model, sampled, settings, process) if process and settings.agreement else {}
    seconds = {name: statistics.median(values) for name, values in rounds.items()}
    return {
        "workload": _describe(workload),
        "fill": first.fill,
        "packed_tokens": first.suffix_tokens,
        "step_tokens": model.step_tokens,
        "compilations": first.compilations,
        "compile_seconds": first.compile_seconds,
        "peak_bytes": peak_bytes,
        "peak_bytes_of": peak_of,
        **_speed(workload, model, seconds, products),
        "peers": _compare(contenders, seconds),
        "agreement": agreement,
        "seconds": rounds,
    }


def _describe(workload: workloads.Workload) -> dict[str, Any]:
    return {
        "name": workload.name,
        "anchors": workload.prompts.num_prompts,
        "prefix_tokens": len(workload.largest.prefix_P),
        "suffix_tokens": workload.num_suffix_tokens,
        "truncated": workload.prompts.num_truncated,
    }


def _speed(
    workload: workloads.Workload,
    model: lm.LanguageModel,
    seconds: Mapping[str, float],
    products: ceilings.MatrixProducts,
) -> dict[str, Any]:
    own, peak = seconds[OURS], products.peak(seconds) * model.mesh.size
    needed = flops.needed(model.config, workload.prompts.groups)
    all_blocks = flops.all_blocks(model.config, workload.prompts.groups)
    return {
        "anchors_per_second": workload.prompts.num_prompts / own,
        "suffix_tokens_per_second": workload.num_suffix_tokens / own,
        "devices": model.mesh.size,
        "matrix_products": products.rates(seconds),
        "peak_flops_per_second": peak,
        "flops_needed": needed,
        "flops_per_second": needed / own,
        "share_of_peak": needed / own / peak,
        "flops_all_blocks": all_blocks,
        "share_of_peak_all_blocks": all_blocks / own / peak,
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
