"""What an anchor costs as the datastore grows and as the demonstrations grow: flat and nearly flat is what it should be."""

import functools
import statistics
from typing import Any

from knnprompt_jax import parallel
from knnprompt_jax.benchmark import flops, subjects, timing, workloads
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.prompts import packing

ANCHORS, PREFIX = "anchors", "prefix_tokens"


def run(settings: settings_lib.BenchmarkSettings, subject: subjects.Subject) -> dict[str, Any]:
    """Two series over drawn lengths: more anchors after one prefix, and the fewest anchors after longer prefixes."""
    fewest = min(settings.growth_anchors)
    series = {
        ANCHORS: [(count, settings.prefix_tokens) for count in settings.growth_anchors],
        PREFIX: [(fewest, prefix) for prefix in settings.growth_prefixes],
    }
    made = {size: workloads.synthetic(settings, subject, *size) for sizes in series.values() for size in sizes}
    _, model = workloads.language_model(settings, subject)
    # One shape for all numbers of anchors: they must share a compilation, as the chunks of one datastore do.
    common = packing.choose_shape(
        [group for size in series[ANCHORS] for group in made[size].prompts.groups],
        model.step_tokens,
        model.mesh.shape[parallel.DATA],
    )
    shapes = {size: (lambda group: common) if size in series[ANCHORS] else None for size in made}
    turns = {
        str(size): timing.stopwatch(functools.partial(model.states, made[size].prompts, shapes[size])) for size in made
    }
    rounds = timing.interleave(turns, settings.repetitions)
    rows = {}
    for size, workload in made.items():
        seconds, needed = statistics.median(rounds[str(size)]), flops.needed(subject.config, workload.prompts.groups)
        anchors, prefix = size
        rows[size] = {
            ANCHORS: anchors,
            PREFIX: prefix,
            "anchors_per_second": anchors / seconds,
            "ms_per_anchor": 1e3 * seconds / anchors,
            "gflop_per_anchor": needed / anchors / 1e9,
        }
    peak_bytes, peak_of = timing.peak_bytes()
    return {
        "model_shape": subject.name,
        "suffix_tokens": settings.suffix_tokens,
        **{name: [rows[size] for size in sizes] for name, sizes in series.items()},
        "compilations": model.statistics.compilations,
        "peak_bytes": peak_bytes,
        "peak_bytes_of": peak_of,
        "seconds": rounds,
    }
