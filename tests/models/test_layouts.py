"""The memory order of weights differs on TPUs."""

import types

import pytest
from jax.experimental.layout import Format

from knnprompt_jax import parallel
from knnprompt_jax.models import registry, sharding


@pytest.mark.parametrize(
    ("name", "model", "q_order", "kv_order"),
    [
        ("facebook/opt-6.7b", 2, None, (0, 2, 1, 3, 4)),
        ("facebook/opt-30b", 8, (0, 2, 3, 1), (0, 2, 3, 4, 1)),  # Seven heads on each device.
        ("meta-llama/Meta-Llama-3-8B", 2, None, (0, 2, 1, 3, 4)),
        ("Qwen/Qwen3-32B", 8, None, (0, 2, 3, 4, 1)),  # One key head.
        ("gpt2-xl", 1, None, None),
    ],
)
def test_layouts_differ_only_on_tpus(name, model, q_order, kv_order):
    config = registry.published(name)
    on_tpu = types.SimpleNamespace(abstract_device=types.SimpleNamespace(platform="tpu"))
    layouts = sharding._layouts(config, types.SimpleNamespace(abstract_mesh=on_tpu, shape={"model": model}))
    orders = [layouts.get(f"blocks.attention.{kernel}_kernel") for kernel in ("q", "kv")]
    assert orders == [q_order, kv_order] and layouts["tokens"] == (0, 1)
    place = sharding.placement(config, parallel.make_mesh(1, 1))
    assert not isinstance(place("tokens"), Format)
