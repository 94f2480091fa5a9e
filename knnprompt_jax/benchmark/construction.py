"""Building a datastore: the speed of the language-model pass, beside the device's peak and other procedures."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from knnprompt_jax import errors, lm, parallel, states
from knnprompt_jax.benchmark import peers, timing
from knnprompt_jax.lm import memory
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import decoder, sharding
from knnprompt_jax.models.weights import checkpoints
from knnprompt_jax.planning import compiled, operations, workload
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import planning as settings_lib
from knnprompt_jax.store import representations

OURS = "ours"


def run(settings: settings_lib.BenchmarkSettings, subject: workload.Subject) -> dict[str, Any]:
    """Time whole passes over the workload. Turns of ours, of the peers and of matrix products are interleaved."""
    work = workload.make(settings, subject, settings.anchors)
    model = load(settings, subject, work.tokenizer)
    states.read(model, work.prompts)
    first = dataclasses.replace(model.statistics)
    peak_bytes, peak_of = timing.peak_bytes()
    weights, sampled = model.execution.decoder, peers.sample(work.largest, settings)
    product, product_operations = timing.matrix_products(config_lib.DTYPES[settings.dtype])
    turns = {OURS: timing.stopwatch(lambda: states.read(model, work.prompts))}
    turns |= peers.jax_turns(weights, sampled, settings)
    with peers.start_all(weights, subject, sampled, settings) as (running, absent):
        turns |= {name: functools.partial(process.turn, name) for name, process in running.items()}
        seconds = timing.medians(turns | {"product": product}, settings.repetitions)
        agreement = compare(model, sampled, running)
    prompts = {name: sampled.num_prompts(name) for name in turns} | {OURS: work.prompts.num_prompts}
    rates = {name: count / seconds[name] for name, count in prompts.items()}
    suffix_tokens = sum(len(suffix) for group in work.prompts.groups for suffix in group.suffixes)
    needed = operations.needed(model.config, work.prompts.groups) / seconds[OURS]
    peak = product_operations / seconds["product"] * model.mesh.size
    return {
        "anchors": work.prompts.num_prompts,
        "prefix_tokens": len(work.largest.prefix_P),
        "tokens_per_suffix": suffix_tokens / work.prompts.num_prompts,
        "tokenizer": work.tokenizer_name,
        "truncated": work.prompts.num_truncated,
        "step_tokens": model.step_tokens,
        "anchors_per_second": rates[OURS],
        "suffix_tokens_per_second": suffix_tokens / seconds[OURS],
        "packed_slots_used": first.fill,
        "packed_tokens_of_suffix_tokens": first.suffix_tokens / suffix_tokens,
        "needed_gflop_per_second": needed / 1e9,
        "peak_gflop_per_second": peak / 1e9,
        "share_of_peak": needed / peak,
        "compilations": first.compilations,
        "compile_seconds": first.compile_seconds,
        f"peak_mb_of_{peak_of}_memory": peak_bytes / 1e6,
        "peers": [
            {
                "peer": settings_lib.PEERS.get(name, OURS),
                "prompts_per_turn": prompts[name],
                "prompts_per_second": rate,
                "ours_is_times_faster": rates[OURS] / rate,
                **agreement.get(name, dict.fromkeys(("largest_difference", "mean_kl", "largest_kl"), "")),
            }
            for name, rate in rates.items()
        ],
        "absent": [{"without": settings_lib.PEERS[name], "reason": reason} for name, reason in absent.items()],
    }


def load(settings: settings_lib.BenchmarkSettings, subject: workload.Subject, tokenizer: Any) -> lm.LanguageModel:
    """Load the weights, or draw random ones for a published shape.

    Raises:
        UserError: a mesh without devices or one that cannot split the model, or a file that cannot be read.
    """
    size = settings.mesh.model or memory.model_axis(subject.config, settings.dtype, settings.batch)
    dtype = config_lib.DTYPES[settings.dtype]

    def load_weights(mesh: Mesh) -> decoder.Decoder:
        if subject.path:
            return checkpoints.load(subject.path, subject.config, dtype, sharding.placement(subject.config, mesh))
        graph, abstract = compiled.abstract(subject.config, settings.dtype, mesh)
        where = jax.tree.map(lambda leaf: leaf.format, abstract)
        draw = jax.jit(lambda: nnx.state(decoder.Decoder(subject.config, nnx.Rngs(0), dtype)), out_shardings=where)
        return nnx.merge(graph, draw())

    return lm.LanguageModel(
        subject.config,
        tokenizer,
        load_weights,
        name=subject.name,
        dtype=settings.dtype,
        step_tokens=settings.batch,
        mesh=parallel.make_mesh(settings.mesh.data, size),
    )


def compare(
    model: lm.LanguageModel, sampled: peers.Sample, running: Mapping[str, peers.PeerProcess]
) -> dict[str, dict[str, float]]:
    """Compare the log-probabilities of each peer with ours, for all prompts of its turn.

    llama.cpp rounds activations to 8 bits, so the KL divergence of its distributions from ours (in nats) says more than the difference.

    Raises:
        UserError: a peer fails, or has another vocabulary.
    """
    found = {}
    for name, process in running.items():
        suffixes = [suffix for batch in sampled.batches for suffix in batch]
        if name == "torch_one":
            suffixes = [tokens[len(sampled.prefix_P) :] for tokens in sampled.prompts]
        group = layout.PromptGroup(sampled.prefix_P, tuple(suffixes), np.arange(len(suffixes)))
        read = states.read(model, layout.Prompts((group,), num_prompts=len(suffixes)))
        ours_NV = np.asarray(representations.log_probabilities(model.head, read), np.float64)
        theirs_NV = np.concatenate(process.ask(name, is_wanted=True)[1]).astype(np.float64)
        if theirs_NV.shape != ours_NV.shape:
            raise errors.UserError(
                f"{settings_lib.PEERS[name]}: it has {theirs_NV.shape[1]} tokens; the model has {ours_NV.shape[1]}"
            )
        # Rounded distributions do not sum to 1; with the correction the divergence is never negative.
        kl_N = (np.exp(ours_NV) * (ours_NV - theirs_NV) - np.exp(ours_NV) + np.exp(theirs_NV)).sum(-1)
        found[name] = {
            "largest_difference": float(np.abs(ours_NV - theirs_NV).max()),
            "mean_kl": float(kl_N.mean()),
            "largest_kl": float(kl_N.max()),
        }
    return found
