"""Memory by arithmetic chooses a mesh; `tests/devices/test_compiled.py` compares it with XLA's."""

import types

import jax
import pytest
from jax.sharding import AbstractMesh

from knnprompt_jax.common import parallel
from knnprompt_jax.inference.lm import memory
from knnprompt_jax.inference.prompts import packing
from knnprompt_jax.models import registry

SHAPE = packing.PackShape(prefix=67, width=128, rows=5, outputs=11)
GIB = 2**30


@pytest.mark.parametrize(("model", "parts"), [(1, 1), (2, 2), (8, 8), (16, 8)])
def test_key_heads_are_split_no_further_than_there_are(model, parts):
    config = registry.config_from_hf(registry.PUBLISHED["meta-llama/Meta-Llama-3-8B"])
    mesh = AbstractMesh((3, model), parallel.AXES)
    assert memory.estimate(config, "bfloat16", SHAPE, mesh, "tpu").prefix == 2 * 2 * 32 * 8 // parts * 67 * 128


@pytest.mark.parametrize(
    ("name", "dtype", "limit", "size"),
    [
        ("gpt2-xl", "bfloat16", 15.75, 1),
        ("gpt2-xl", "float32", 3, 1),  # 25 heads: 8 devices can only have a copy each.
        ("facebook/opt-6.7b", "bfloat16", 15.75, 2),
        ("facebook/opt-30b", "bfloat16", 15.75, 8),
        ("facebook/opt-30b", "bfloat16", 80, 1),
        ("Qwen/Qwen3-32B", "bfloat16", 60, 2),
        ("facebook/opt-66b", "float32", 15.75, 8),  # None fits.
    ],
)
def test_the_smallest_axis_that_fits(name, dtype, limit, size):
    config = registry.config_from_hf(registry.PUBLISHED[name])
    assert memory.smallest_model_axis(config, dtype, 16384, 8, limit * GIB, "tpu") == size


def test_devices_that_say_nothing_of_memory_have_one_copy_each(monkeypatch):
    assert memory.model_axis(registry.config_from_hf(registry.PUBLISHED["facebook/opt-66b"]), "float32") == 1
    devices = [types.SimpleNamespace(platform="tpu", memory_stats=lambda: {"bytes_limit": 31 * GIB})] * 4
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(jax, "local_devices", lambda: devices[:1])
    assert memory.model_axis(registry.config_from_hf(registry.PUBLISHED["gpt2-xl"]), "bfloat16") == 1
    assert memory.model_axis(registry.config_from_hf(registry.PUBLISHED["facebook/opt-30b"]), "bfloat16") == 4
