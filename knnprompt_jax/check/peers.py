"""PyTorch on the same device, shape and prompts: one prompt at a time, and a cached prefix in batches."""

import dataclasses
import importlib.util
from collections.abc import Iterator

import jax

from knnprompt_jax.benchmark import construction as benchmark
from knnprompt_jax.benchmark import operations, peers, workload
from knnprompt_jax.check import construction, findings
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.settings import benchmark as benchmark_settings
from knnprompt_jax.settings import check as settings_lib

TABLE = "peers"
_PROMPTS = 4
_SUFFIXES = 64
_BATCH = 16
_KL = {"float32": 1e-4, "bfloat16": 0.01}  # Nats.
_LOADING = 60.0  # Seconds to write the weights and to load them in PyTorch.
_SLOWER = 4.0  # Times slower than the product of large matrices, at worst.


def make_checks(settings: settings_lib.CheckSettings) -> list[findings.Check]:
    """Return the checks of the first of the shapes, if there is any."""
    subjects = [construction.Subject(shape, lengths) for shape in settings.shapes[:1] for lengths in workload.LENGTHS]
    return [subject.make_check(TABLE, run, _seconds, _misfit) for subject in subjects]


def run(subject: construction.Subject, inputs: inputs_lib.Inputs) -> Iterator[findings.Finding]:
    """Measure a pass of ours and turns of both procedures."""
    del inputs
    names = tuple(benchmark_settings.PEERS)
    settings = dataclasses.replace(
        subject.settings, peers=names, peer_prompts=_PROMPTS, peer_suffixes=_SUFFIXES, peer_batch=_BATCH
    )
    found = benchmark.measure(settings, subject.model, subject.build(), [peers.TORCH])
    for row in found["peers"]:
        yield findings.Row(TABLE, {"shape": subject.shape, "prompts": subject.lengths, **row})
        if row["peer"] != benchmark.OURS:
            compared = f"{row['peer']}: KL of its distributions from ours, nats"
            reason = f"rounding in {settings.dtype}; another model differs by more"
            yield findings.Comparison(compared, row["largest_kl"], _KL[settings.dtype], reason)
    for absent in found["absent"]:
        yield findings.Skipped(absent["without"], absent["reason"])


def _seconds(subject: construction.Subject, inputs: inputs_lib.Inputs) -> float:
    """Estimate a measurement: ours, and two turns of both procedures."""
    group = subject.group
    passes = _PROMPTS + _SUFFIXES * sum(map(len, group.suffixes)) / len(group.suffixes) / len(group.prefix_P)
    theirs = 2 * passes * operations.prefix_program(subject.model.config, len(group.prefix_P))
    speed = inputs.operations_per_second[subject.settings.dtype]
    return subject.seconds_of_pass(inputs) + _LOADING + _SLOWER * theirs / speed


def _misfit(subject: construction.Subject) -> str:
    """Return why PyTorch cannot be measured on the same device."""
    del subject
    if jax.process_count() > 1 or jax.device_count() > 1:
        return "PyTorch is measured on one device"
    if not importlib.util.find_spec("torch") or not importlib.util.find_spec("transformers"):
        return "PyTorch is not installed"
    import torch

    platform = jax.default_backend()
    sees_device = platform == "cpu" or (platform == "gpu" and torch.cuda.is_available())
    return "" if sees_device else f"PyTorch does not see the {platform}"
