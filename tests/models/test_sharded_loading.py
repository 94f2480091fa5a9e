"""Weights go from file to shard: each of four devices holds its own part, and the model computes the same."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the checkpoint is made with PyTorch")
from tests.models import torch_models  # noqa: E402

PROGRAM = """
import sys
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from flax import nnx
from knnprompt_jax.models import checkpoints, registry

SPECS = {
    "blocks.mlp.up_kernel": P(None, None, "model"),
    "blocks.mlp.down_kernel": P(None, "model"),
    "blocks.attention.kv_kernel": P(None, None, None, "model"),
    "blocks.attention.out_kernel": P(None, "model", None, "data"),
    "blocks.mlp_norm.scale": P("data"),
    "tokens": P(("data", "model")),
}
mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
config, folder = registry.describe(sys.argv[1])
whole = checkpoints.load(folder, config, np.float32)
split = checkpoints.load(folder, config, np.float32, lambda path: NamedSharding(mesh, SPECS.get(path, P())))
parts = {".".join(path): variable for path, variable in nnx.to_flat_state(nnx.state(split))}
for path, one in nnx.to_flat_state(nnx.state(whole)):
    path = ".".join(path)
    other = parts.pop(path)
    assert other[...].sharding.spec == SPECS.get(path, P()), path
    for shard in other[...].addressable_shards:
        np.testing.assert_array_equal(shard.data, one[...][shard.index], err_msg=path)
tokens_BT = np.arange(26).reshape(2, 13)
np.testing.assert_allclose(jax.jit(lambda model: model(tokens_BT))(split), whole(tokens_BT), atol=1e-4)
assert not parts
print(len(jax.devices()), split.tokens[...].addressable_shards[0].data.shape)
"""


def test_each_device_holds_its_part(tmp_path):
    torch_models.write_safetensors(torch_models.make("opt-even"), tmp_path, sharded=True)
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, **environment},
        cwd=pathlib.Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[0] == "4 (13, 34)"
