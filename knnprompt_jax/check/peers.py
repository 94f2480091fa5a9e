"""PyTorch on the same device, shape and prompts: one prompt at a time, and a cached prefix in batches."""

import dataclasses
import functools
import importlib.util
from collections.abc import Iterator

import jax

from knnprompt_jax.benchmark import construction as benchmark
from knnprompt_jax.benchmark import operations, peers, workload
from knnprompt_jax.check import check, construction
from knnprompt_jax.check import subject as subject_lib
from knnprompt_jax.settings import benchmark as benchmark_settings
from knnprompt_jax.settings import check as settings_lib

TABLE = "peers"
_LENGTHS = "trec"
_PROMPTS = 4
_SUFFIXES = 64
_LOADING = 60.0  # Seconds to write the weights and to load them in PyTorch.
_SLOWER = 4.0  # Times slower than the product of large matrices, at worst.


def make_checks(settings: settings_lib.CheckSettings) -> list[check.Check]:
    """Return the check of the first of the shapes, if there is any."""
    return [
        check.Check(
            f"{TABLE}: {shape}, prompts as of {_LENGTHS}",
            functools.partial(run, shape=shape),
            seconds=functools.partial(_seconds, shape=shape),
            misfit=_misfit,
        )
        for shape in settings.shapes[:1]
    ]


def run(subject: subject_lib.Subject, shape: str) -> Iterator[check.Finding]:
    """Measure a pass of ours and turns of both procedures."""
    del subject
    settings = _settings(shape)
    described = workload.describe(shape)
    work = workload.build_random(settings, described, _LENGTHS, construction.num_anchors())
    found = benchmark.measure(settings, described, work, [peers.TORCH])
    for row in found["peers"]:
        yield check.Row(TABLE, {"shape": shape, **row})
    for absent in found["absent"]:
        yield check.Skipped(absent["without"], absent["reason"])


def _settings(shape: str) -> benchmark_settings.BenchmarkSettings:
    names = tuple(benchmark_settings.PEERS)
    return dataclasses.replace(
        construction.settings_for(shape), peers=names, peer_prompts=_PROMPTS, peer_suffixes=_SUFFIXES
    )


def _misfit(subject: subject_lib.Subject) -> str:
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


def _seconds(subject: subject_lib.Subject, shape: str) -> float:
    """Estimate a measurement: ours, and two turns of both procedures."""
    settings = _settings(shape)
    config = workload.describe(shape).config
    [group] = workload.random_prompts(config, _LENGTHS, construction.num_anchors()).groups
    passes = _PROMPTS + _SUFFIXES * sum(map(len, group.suffixes)) / len(group.suffixes) / len(group.prefix_P)
    theirs = 2 * passes * operations.prefix_program(config, len(group.prefix_P))
    speed = subject.operations_per_second[settings.dtype]
    return construction.seconds_of_pass(subject, shape, _LENGTHS) + _LOADING + _SLOWER * theirs / speed
