"""Estimate a pass's memory per device by arithmetic, and choose a mesh before any weights are loaded.

Weights and prefix are exact. The working memory is that of the largest stage of a block. The sum is within a tenth of
XLA's memory analysis (tests/devices).
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AbstractMesh

from knnprompt_jax.common import parallel
from knnprompt_jax.inference.lm import execution
from knnprompt_jax.inference.prompts import packing
from knnprompt_jax.models import attention, kernel_proof, registry, sharding
from knnprompt_jax.models import config as config_lib

PREFIX_TOKENS = 2048  # Assumed tokens of demonstrations before prompts are built: more than most tasks have.
OUTPUTS_PER_ROW = 16  # Assumed outputs per row.
MARGIN = 0.9  # The share of a device's memory to fill, because the estimate is right to a tenth.
# Copies of the residual stream, and of arrays of all heads, in a block.
_STREAMS = 3
_PROJECTED = 6


@dataclasses.dataclass(frozen=True)
class Need:
    """Bytes on each device."""

    weights: int
    prefix: int
    working: int

    @property
    def total(self) -> int:
        return self.weights + self.prefix + self.working


def estimate(
    config: config_lib.DecoderConfig, dtype: str, shape: packing.PackShape, mesh: sharding.AnyMesh, platform: str
) -> Need:
    """Return the memory that reading suffixes takes with a packing.

    Raises:
        UserError: the mesh cannot split the model.
    """
    where = sharding.shardings(config, mesh)
    leaves = nnx.to_flat_state(nnx.state(registry.abstract(config, jnp.dtype(dtype))))
    shards = [(where(".".join(map(str, path))).shard_shape(leaf.shape), leaf.dtype.itemsize) for path, leaf in leaves]
    weights = sum(math.prod(shard) * itemsize for shard, itemsize in shards)
    heads = max(config.num_kv_heads // mesh.shape[parallel.MODEL], 1)
    size = jnp.dtype(dtype).itemsize
    prefix = 2 * config.num_layers * heads * shape.prefix * config.head_size * size
    return Need(weights, prefix, _working(config, size, shape, mesh, platform))


def smallest_model_axis(
    config: config_lib.DecoderConfig, dtype: str, step_tokens: int, devices: int, limit: float, platform: str
) -> int:
    """Return the smallest size of the mesh axis `model` with which a pass fills at most `limit` bytes.

    The size divides the devices and the model. If no size suffices, return the largest that divides them.
    """
    rows = max(1, step_tokens // packing.ROW_WIDTH)
    prefix = min(PREFIX_TOKENS, config.num_positions)
    shape = packing.PackShape(prefix, packing.ROW_WIDTH, rows, OUTPUTS_PER_ROW * rows)
    sizes = sharding.model_axes(config, devices)
    meshes = {size: AbstractMesh((devices // size, size), parallel.AXES) for size in sizes}
    fitting = (size for size in sizes if estimate(config, dtype, shape, meshes[size], platform).total <= MARGIN * limit)
    return next(fitting, sizes[-1])


def model_axis(config: config_lib.DecoderConfig, dtype: str, step_tokens: int = 0) -> int:
    """Return the smallest size of the mesh axis `model` with which the model fits this machine's devices; 1 on CPUs.

    If `step_tokens` is 0, the device's default is used. CPUs report no limit of memory.
    """
    devices = jax.devices()
    platform = devices[0].platform
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", math.inf)
    tokens = step_tokens or execution.step_tokens(platform)
    return smallest_model_axis(config, dtype, tokens, len(devices), limit, platform)


def _working(
    config: config_lib.DecoderConfig, size: int, shape: packing.PackShape, mesh: sharding.AnyMesh, platform: str
) -> int:
    """Return the bytes of the residual stream and of the largest stage of a block or the head."""
    if platform == "cpu":  # XLA computes in float32 there, whatever the dtype of activations.
        size = 4
    model_shards = mesh.shape[parallel.MODEL]
    tokens = shape.rows * shape.width
    streams = _STREAMS * tokens * config.width * size
    projected = _PROJECTED * tokens * config.num_heads // model_shards * config.head_size * size
    kv_heads = max(1, config.num_kv_heads // model_shards)
    heads_per_key = config.num_heads // config.num_kv_heads
    if shape.prefix and kernel_proof.is_expected(platform):
        # Only the last block, whose few queries attend to all tokens, has logits in memory.
        kept = projected // 2
        logits = heads_per_key * shape.outputs * (tokens + shape.prefix)
        nbytes = 4 if platform == "tpu" else 4 + size
    else:
        kept = projected
        logits = heads_per_key * tokens * (shape.width + shape.prefix)
        nbytes = 4 if size == 4 else 4 + size
    # Logits are float32; softmax weights in the activations' dtype are beside them, except where XLA fuses or re-uses.
    attending = kept + attention.heads_together(kv_heads, logits, platform) * logits * nbytes
    mlp = (3 if config.gated_mlp else 2) * tokens * config.mlp_width // model_shards * size
    return streams + max(projected, attending, mlp, 4 * shape.outputs * config.vocab_size // model_shards)
