"""Measure how many prompts per second this host prepares for its devices.

A process builds the prompts of all examples, with their keys, and packs those of its own data shards. Transfers to the
devices and the caching of states are not measured.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from knnprompt_jax.common import parallel
from knnprompt_jax.devices import machine, workload
from knnprompt_jax.inference.prompts import layout, packing
from knnprompt_jax.inference.states import chunks

Groups = Sequence[layout.PromptGroup]
_NUM_PROMPTS = 8192  # At most: a few seconds in all.
_REPETITIONS = 3
_BLOCKS_AHEAD = 2


@dataclasses.dataclass(frozen=True)
class HostSpeed:
    """Seconds per prompt of each stage, and of all stages as the stream of `states.read`."""

    build: float
    keys: float
    pack: float
    whole: float

    def prompts_per_second(self, hosts: int = 1) -> float:
        """Return what each of several hosts prepares if each packs its share of the prompts."""
        packed_elsewhere = self.pack * (hosts - 1) / hosts
        return 1 / max(self.build + self.keys, self.whole - packed_elsewhere)

    def bottleneck(self, devices_per_second: float, hosts: int = 1) -> str:
        """Return "host" if it prepares fewer prompts per second than the devices read, otherwise "devices"."""
        return "host" if self.prompts_per_second(hosts) < devices_per_second else "devices"

    def table(self) -> list[dict[str, Any]]:
        """Return a row per stage."""
        titles = {"build": "render and tokenize", "keys": "keys", "pack": "pack", "whole": "all, as a stream"}
        return [
            {"stage_of_the_host": titles[name], "prompts_per_second": 1 / seconds, "cores": machine.num_cores()}
            for name, seconds in dataclasses.asdict(self).items()
        ]


def measure(work: workload.Workload, step_tokens: int, shards: int = 1) -> HostSpeed:
    """Prepare the first prompts of a workload several times, and return the median times."""
    build = functools.partial(work.build, _NUM_PROMPTS)
    prompts = build()
    blocks = [block.groups for block in prompts.blocks()]
    shape_of = packing.choose_shapes(prompts.groups, step_tokens, shards)

    def with_keys(blocks: Iterable[Groups]) -> Iterator[Groups]:
        for groups in blocks:
            chunks.make_keys(groups, model_key="")
            yield groups

    def pack(blocks: Iterable[Groups]) -> None:
        for groups in blocks:
            for group in groups:
                packing.pack(group, shape_of(group), shards)

    def stream() -> None:
        pack(parallel.ahead(with_keys(block.groups for block in build().blocks()), _BLOCKS_AHEAD))

    stages = {
        "build": lambda: list(build().blocks()),
        "keys": lambda: list(with_keys(blocks)),
        "pack": lambda: pack(blocks),
        "whole": stream,
    }
    turns = {name: machine.stopwatch(stage) for name, stage in stages.items()}
    seconds = machine.medians(turns, _REPETITIONS)
    return HostSpeed(**{name: seconds[name] / prompts.num_prompts for name in seconds})
