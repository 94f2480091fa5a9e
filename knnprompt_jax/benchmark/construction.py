"""Building a datastore: the speed of the language-model pass, beside the device's peak and other procedures."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from knnprompt_jax import errors, lm, states
from knnprompt_jax.benchmark import operations, peer_process, peers, timing, workload
from knnprompt_jax.benchmark.peer_process import PeerProcess
from knnprompt_jax.models import registry
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import benchmark as settings_lib
from knnprompt_jax.store import representations

OURS = "ours"
AGREEMENT = ("largest_difference", "mean_kl", "largest_kl")


def run(
    settings: settings_lib.BenchmarkSettings, libraries: Sequence[peers.Library] = (peers.TORCH,)
) -> dict[str, Any]:
    """Time whole passes over the anchors of a task, as `measure`.

    Raises:
        UserError: impossible settings, or a model that cannot be loaded.
    """
    subject = workload.describe(settings.model)
    try:
        return measure(settings, subject, workload.build(settings, subject, settings.anchors), libraries)
    except peer_process.PeerError as error:
        raise errors.UserError(f"{error}; leave it out with --peers") from error


def measure(
    settings: settings_lib.BenchmarkSettings,
    subject: workload.ModelShape,
    work: workload.Workload,
    libraries: Sequence[peers.Library] = (),
) -> dict[str, Any]:
    """Time whole passes over a workload. Turns of ours, of the peers and of matrix products are interleaved.

    Raises:
        UserError: a model that cannot be loaded, or a peer that fails.
    """
    model = work.model
    states.read(model, work.prompts)
    first = dataclasses.replace(model.statistics)
    peak_bytes, memory_kind = timing.peak_bytes()
    weights = model.execution.decoder
    sampled = peers.sample(work.largest, settings)
    product, product_operations = timing.matrix_products(jnp.dtype(settings.dtype))
    turns = {OURS: timing.stopwatch(lambda: states.read(model, work.prompts))}
    with peers.start_all(libraries, weights, subject, sampled, settings) as (running, absent):
        turns |= {name: functools.partial(process.time, name) for name, process in running.items()}
        seconds = timing.medians(turns | {"product": product}, settings.repetitions)
        agreement = compare(model, sampled, running)
    titles = {name: title for library in libraries for name, title in library.procedures.items()}
    num_prompts = work.prompts.num_prompts
    suffix_tokens = sum(len(suffix) for group in work.prompts.groups for suffix in group.suffixes)
    ours = num_prompts / seconds[OURS]
    required = operations.required(model.config, work.prompts.groups) / seconds[OURS]
    peak = timing.speed_of_all(product_operations / seconds["product"], model.mesh.size)
    rows = [_row(OURS, num_prompts, ours, ours, dict.fromkeys(AGREEMENT, ""))]
    for name in running:
        count = len(sampled.suffixes(name))
        rows.append(_row(titles[name], count, count / seconds[name], ours, agreement[name]))
    return {
        "model": subject.name,
        "weights": "random" if subject.path is None else "its own",
        "parameters": registry.num_parameters(subject.config),
        "dtype": settings.dtype,
        "anchors": num_prompts,
        "prefix_tokens": len(work.largest.prefix_P),
        "tokens_per_suffix": suffix_tokens / num_prompts,
        "tokenizer": work.tokenizer_name,
        "truncated": work.prompts.num_truncated,
        "step_tokens": model.step_tokens,
        "anchors_per_second": ours,
        "suffix_tokens_per_second": suffix_tokens / seconds[OURS],
        "packed_slots_used": first.fill,
        "packed_tokens_of_suffix_tokens": first.suffix_tokens / suffix_tokens,
        "required_gflop_per_second": required / 1e9,
        "peak_gflop_per_second": peak / 1e9,
        "share_of_peak": required / peak,
        "compilations": first.compilations,
        "compile_seconds": first.compile_seconds,
        f"peak_mb_of_{memory_kind}_memory": peak_bytes / 1e6,
        "peers": rows,
        "absent": [{"without": titles[name], "reason": reason} for name, reason in absent.items()],
    }


def _row(title: str, num_prompts: int, rate: float, ours: float, agreement: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a procedure in the table of peers."""
    return {
        "peer": title,
        "prompts_per_turn": num_prompts,
        "prompts_per_second": rate,
        "ours_is_times_faster": ours / rate,
        **agreement,
    }


def compare(
    model: lm.LanguageModel, sampled: peers.Sample, running: Mapping[str, PeerProcess]
) -> dict[str, dict[str, float]]:
    """Compare the log-probabilities of each peer with ours, for all prompts of its turn.

    A library that rounds activations (llama.cpp) differs a lot where probabilities are small, so the KL divergence says
    more than the difference.

    Returns:
        For each procedure, the numbers `AGREEMENT`: the largest difference of its log-probabilities from ours (nats),
        and the mean and the largest KL divergence of its distributions from ours.

    Raises:
        UserError: a peer fails, or has another vocabulary.
    """
    found = {}
    for name, process in running.items():
        suffixes = sampled.suffixes(name)
        group = layout.PromptGroup(sampled.prefix_P, tuple(suffixes), np.arange(len(suffixes)))
        ours = states.read(model, layout.Prompts((group,), num_prompts=len(suffixes)))
        ours_NV = np.asarray(representations.log_probabilities(model.head, ours), np.float64)
        theirs_NV = np.concatenate(process.call(name, returns_result=True)[1]).astype(np.float64)
        if theirs_NV.shape != ours_NV.shape:
            raise errors.UserError(
                f"{process.title}, {name}: it has {theirs_NV.shape[1]} tokens; the model has {ours_NV.shape[1]}"
            )
        # Rounded distributions do not sum to 1; with the correction the divergence is never negative.
        kl_N = (np.exp(ours_NV) * (ours_NV - theirs_NV) - np.exp(ours_NV) + np.exp(theirs_NV)).sum(-1)
        numbers = np.abs(ours_NV - theirs_NV).max(), kl_N.mean(), kl_N.max()
        found[name] = dict(zip(AGREEMENT, map(float, numbers), strict=True))
    return found
