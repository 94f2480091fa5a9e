"""Building a datastore: the speed of the language-model pass, beside the device's peak and other procedures."""

import collections
import dataclasses
import functools
import os
import statistics
import tempfile
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from knnprompt_jax import errors, lm, parallel, states
from knnprompt_jax.benchmark import peers, processes, timing
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.lm import memory
from knnprompt_jax.models import checkpoints, decoder, registry, sharding
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models.gguf import header as gguf_header
from knnprompt_jax.planning import operations, workload
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import representations

OURS = "ours"
_COMPARED = 4  # Whole prompts whose log-probabilities are compared with a peer's.
_UNQUANTISED = ("F64", "F32", "F16", "BF16")


def run(settings: settings_lib.BenchmarkSettings, subject: workload.Subject) -> dict[str, Any]:
    """Time whole passes over the workload. Turns of ours, of the peers and of matrix products are interleaved."""
    work = workload.make(settings, subject, settings.anchors)
    weights, model = load(settings, subject, work.tokenizer)
    states.read(model, work.prompts)
    first = dataclasses.replace(model.statistics)
    peak_bytes, peak_of = timing.peak_bytes()
    sampled = peers.sample(work.largest, settings)
    shape = model.step_tokens, subject.config.width, subject.config.mlp_width
    products = timing.matrix_products(config_lib.DTYPES[settings.dtype], shape)
    turns = {OURS: timing.stopwatch(lambda: states.read(model, work.prompts))}
    turns |= peers.jax_turns(weights, sampled, settings)
    with processes.start_all(weights, subject, sampled, settings) as (running, absent):
        turns |= {name: functools.partial(process.ask, name) for name, process in running.items()}
        ceilings = {name: turn for name, (turn, _) in products.items()}
        rounds = timing.interleave(turns | ceilings, settings.repetitions)
        agreement = compare(model, sampled, running)
    seconds = {name: statistics.median(values) for name, values in rounds.items()}
    prompts = {name: sampled.num_prompts(name) for name in turns} | {OURS: work.prompts.num_prompts}
    rates = {name: count / seconds[name] for name, count in prompts.items()}
    peaks = {name: count / seconds[name] for name, (_, count) in products.items()}
    groups = work.prompts.groups
    suffix_tokens = sum(len(suffix) for group in groups for suffix in group.suffixes)
    needed, devices = operations.needed(model.config, groups), model.mesh.size
    peak, of_shape = max(peaks.values()) * devices, list(peaks.values())[-1] * devices
    return {
        "workload": {
            "name": f"task {settings.task}",
            "anchors": work.prompts.num_prompts,
            "prefix_tokens": len(work.largest.prefix_P),
            "suffix_tokens": suffix_tokens,
            "truncated": work.prompts.num_truncated,
            "tokenizer": work.tokenizer_name,
        },
        "fill": first.fill,
        "packed_tokens": first.suffix_tokens,
        "step_tokens": model.step_tokens,
        "compilations": first.compilations,
        "compile_seconds": first.compile_seconds,
        "peak_bytes": peak_bytes,
        "peak_bytes_of": peak_of,
        "anchors_per_second": rates[OURS],
        "suffix_tokens_per_second": suffix_tokens / seconds[OURS],
        "devices": devices,
        "matrix_products": peaks,
        "peak_flops_per_second": peak,
        "flops_needed": needed,
        "flops_per_second": needed / seconds[OURS],
        "share_of_peak": needed / seconds[OURS] / peak,
        "share_of_widths": needed / seconds[OURS] / of_shape,
        "flops_all_blocks": operations.all_blocks(model.config, groups),
        "peers": {
            name: {"prompts": prompts[name], "prompts_per_second": rate, "ours_is_times_faster": rates[OURS] / rate}
            for name, rate in rates.items()
        },
        "absent": absent,
        "llama": _describe_llama(subject, settings) if running.keys() & {*processes.LLAMA.peers} else {},
        "agreement": agreement,
        "seconds": rounds,
    }


def load(
    settings: settings_lib.BenchmarkSettings, subject: workload.Subject, tokenizer: Any
) -> tuple[decoder.Decoder, lm.LanguageModel]:
    """Load the weights, or draw random ones for a published shape. Return the decoder and the same as a `LanguageModel`.

    Raises:
        UserError: a mesh without devices or one that cannot split the model, or a file that cannot be read.
    """
    size = settings.mesh.model or memory.model_axis([subject.config], settings.dtype, settings.batch)
    mesh, dtype = parallel.make_mesh(settings.mesh.data, size), config_lib.DTYPES[settings.dtype]
    place = sharding.placement(subject.config, mesh)
    if subject.path:
        weights = checkpoints.load(subject.path, subject.config, dtype, place)
    else:
        graph, abstract = nnx.split(registry.abstract(subject.config, dtype))
        where = nnx.from_flat_state(
            {path: leaf.replace(place(".".join(map(str, path)))) for path, leaf in nnx.to_flat_state(abstract)}
        )
        draw = jax.jit(lambda: nnx.state(decoder.Decoder(subject.config, nnx.Rngs(0), dtype)), out_shardings=where)
        weights = nnx.merge(graph, draw())
    return weights, lm.LanguageModel(weights, tokenizer, subject.name, step_tokens=settings.batch or None, mesh=mesh)


def compare(
    model: lm.LanguageModel, sampled: peers.Sample, running: Mapping[str, processes.PeerProcess]
) -> dict[str, dict[str, float]]:
    """Compare the log-probabilities of each peer with ours: on a few whole prompts, a batch, or all of llama.cpp's batches.

    llama.cpp rounds activations to 8 bits, so the KL divergence of its distributions from ours (in nats) says more than the difference.

    Raises:
        UserError: a peer fails, or has another vocabulary.
    """
    prefix, batches = len(sampled.prefix_P), sampled.batches
    compared = {
        "torch_one": ([tokens[prefix:] for tokens in sampled.prompts[:_COMPARED]], _COMPARED),
        "torch_cached": (batches[0], 1),
        "llama_cached": ([suffix for batch in batches for suffix in batch], len(batches)),
    }
    found = {}
    for name, process in running.items():
        suffixes, limit = compared[name]
        group = layout.PromptGroup(sampled.prefix_P, tuple(suffixes), np.arange(len(suffixes)))
        read = states.read(model, layout.Prompts((group,), num_prompts=len(suffixes)))
        ours_NV = np.asarray(representations.log_probabilities(model.head, read), np.float64)
        with tempfile.NamedTemporaryFile() as file:
            process.ask("save", of=name, limit=limit, path=file.name)
            theirs = np.fromfile(file.name, np.float32)
        if theirs.size != ours_NV.size:
            raise errors.UserError(
                f"{settings_lib.PEERS[name]}: {theirs.size} log-probabilities of {len(suffixes)} prompts; "
                f"the model has {ours_NV.shape[1]} tokens"
            )
        theirs_NV = theirs.reshape(ours_NV.shape).astype(np.float64)
        # Rounded distributions do not sum to 1; with the correction the divergence is never negative.
        kl_N = (np.exp(ours_NV) * (ours_NV - theirs_NV) - np.exp(ours_NV) + np.exp(theirs_NV)).sum(-1)
        difference = float(np.abs(ours_NV - theirs_NV).max())
        kl = {"kl_mean": float(kl_N.mean()), "kl_max": float(kl_N.max())}
        found[name] = {"prompts": len(suffixes), "max_abs_difference": difference, **kl}
    return found


def _describe_llama(subject: workload.Subject, settings: settings_lib.BenchmarkSettings) -> dict[str, Any]:
    """Return what must be said beside llama.cpp's numbers."""
    assert subject.path  # A GGUF file.
    matrices = [entry for entry in gguf_header.read(subject.path).tensors.values() if len(entry.shape) > 1]
    stored = [kind for kind, _ in collections.Counter(entry.tensor_type.name for entry in matrices).most_common()]
    return {
        "version": processes.llama_version(settings),
        "threads": len(os.sched_getaffinity(0)),
        "stored": stored,
        "is_quantised": any(kind not in _UNQUANTISED for kind in stored),
        "dtype_of_others": settings.dtype,
    }
