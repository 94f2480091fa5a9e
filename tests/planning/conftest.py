"""Requests for the compilers."""

import dataclasses
from collections.abc import Callable

import pytest

from knnprompt_jax.lm import memory
from knnprompt_jax.models import registry
from knnprompt_jax.planning import compiler, programs, targets
from knnprompt_jax.prompts import packing
from knnprompt_jax.store import store as store_lib


@dataclasses.dataclass(frozen=True)
class Case:
    """A model of a published shape on a mesh, with what the compiler says of its programs."""

    request: compiler.Request
    need: memory.Need
    figures: dict[str, compiler.Figures]


@pytest.fixture(scope="session")
def compiled() -> Callable[..., Case]:
    """`compiled("v5e:2x4", 4, 2, ("suffixes",), "facebook/opt-6.7b", "bfloat16", **sizes of the packing)`; skips where that compiler
    is not installed."""

    def compile(
        target: str, data: int, model: int, names: tuple[str, ...], name: str, dtype: str, **sizes: int
    ) -> Case:
        from jax.sharding import AbstractMesh

        from knnprompt_jax import parallel

        if missing := targets.obstacle(targets.get(target, compile=False).device.platform):
            pytest.skip(f"{target}: {missing}")
        shape = packing.PackShape(**{"prefix": 896, "width": 128, "rows": 128, "reads": 1368, **sizes})
        search = programs.Search(2**20, 251, 3, "forward", store_lib.StoreOptions())
        hf = registry.PUBLISHED[name]
        request = compiler.Request(
            *(target, data, model, names, hf, dtype, dataclasses.asdict(shape), dataclasses.asdict(search))
        )
        platform = targets.get(target).device.platform
        mesh = AbstractMesh((data, model), parallel.AXES)
        need = memory.of_pass(registry.config_from_hf(hf), dtype, shape, mesh, platform)
        return Case(request, need, compiler.compile_all(request))

    return compile
