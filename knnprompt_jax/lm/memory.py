"""The memory that a pass takes on each device, by arithmetic: what chooses a mesh before any weight is loaded.

Weights and prefix are exact. The working memory is what the largest stage of a block holds at a time; compilers' figures of the
whole pass are within a tenth of the sum (tests/planning).
"""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AbstractMesh

from knnprompt_jax import parallel
from knnprompt_jax.lm import programs
from knnprompt_jax.models import attention, registry, sharding
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.prompts import packing

PREFIX_TOKENS = 2048  # Of demonstrations, where prompts are not laid out yet: more than most tasks show.
READS_PER_ROW = 16  # Tokens after which the model is asked, likewise.
MARGIN = 0.9  # Of a device's memory that the arithmetic may fill, since it is right to a tenth.
_STREAMS, _PROJECTED = 3, 6  # Copies of the residual stream, and of what has its width in heads, that a block holds.


@dataclasses.dataclass(frozen=True)
class Need:
    """Bytes on each device."""

    weights: int
    prefix: int
    working: int

    @property
    def total(self) -> int:
        return self.weights + self.prefix + self.working


def of_pass(
    config: config_lib.DecoderConfig, dtype: str, shape: packing.PackShape, mesh: sharding.AnyMesh, platform: str
) -> Need:
    """What the reading of suffixes takes in such a packing; raises UserError where the mesh cannot split the model."""
    weights = sum(math.prod(shard) * itemsize for shard, itemsize in _weights(config, dtype, mesh))
    heads = max(config.num_kv_heads // mesh.shape[parallel.MODEL], 1)
    size = jnp.dtype(config_lib.activations(config_lib.DTYPES[dtype])).itemsize
    prefix = 2 * config.num_layers * heads * shape.prefix * config.head_size * size
    return Need(weights, prefix, _working(config, size, shape, mesh, platform))


def smallest_model_axis(
    config: config_lib.DecoderConfig, dtype: str, step_tokens: int, devices: int, limit: float, platform: str
) -> int:
    """The smallest size of the mesh axis `model` that divides devices and model and with which a pass takes, by this arithmetic, nine
    tenths of `limit` bytes on each device or less; the largest that divides where none does."""
    rows = max(1, step_tokens // packing.ROW_WIDTH)
    prefix = min(PREFIX_TOKENS, config.num_positions)
    shape = packing.PackShape(prefix, packing.ROW_WIDTH, rows, READS_PER_ROW * rows)
    sizes = [size for size in range(1, devices + 1) if devices % size == 0 and sharding.divides(config, size)]
    meshes = {size: AbstractMesh((devices // size, size), parallel.AXES) for size in sizes}
    fitting = (size for size in sizes if of_pass(config, dtype, shape, meshes[size], platform).total <= MARGIN * limit)
    return next(fitting, sizes[-1])


def model_axis(configs: Sequence[config_lib.DecoderConfig], dtype: str, step_tokens: int = 0) -> int:
    """The smallest size of the mesh axis `model` with which each of these models fits into the devices that are here; 1 on CPUs.

    `step_tokens` are the device's default where they are 0.
    """
    devices = jax.devices()
    platform, limit = devices[0].platform, of_device()
    tokens = step_tokens or programs.step_tokens(platform)
    sizes = (smallest_model_axis(config, dtype, tokens, len(devices), limit, platform) for config in configs)
    return max(sizes, default=1)


def of_device() -> float:
    """Bytes that programs may take on a device here; no limit where the platform does not say (CPUs do not)."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get("bytes_limit", math.inf)


def _weights(config: config_lib.DecoderConfig, dtype: str, mesh: sharding.AnyMesh) -> list[tuple[tuple[int, ...], int]]:
    """The shape on each device, and the bytes of a number, of every weight."""
    where = sharding.shardings(config, mesh)
    leaves = nnx.to_flat_state(nnx.state(registry.abstract(config, config_lib.DTYPES[dtype])))
    return [(where(".".join(map(str, path))).shard_shape(leaf.shape), leaf.dtype.itemsize) for path, leaf in leaves]


def _working(
    config: config_lib.DecoderConfig, size: int, shape: packing.PackShape, mesh: sharding.AnyMesh, platform: str
) -> int:
    """The residual stream, beside the largest of a block's stages and the head's."""
    model, tokens = mesh.shape[parallel.MODEL], shape.rows * shape.width
    streams = _STREAMS * tokens * config.width * size
    projected = _PROJECTED * tokens * config.num_heads // model * config.head_size * size
    kv_heads, queries = max(1, config.num_kv_heads // model), config.num_heads // config.num_kv_heads
    if attention.is_in_kernel(shape.prefix, platform):
        # Logits are there in the last block alone, whose few queries meet the keys and values of all tokens. They are float32; on a
        # GPU softmax's weights, of the activations' type, stand beside them.
        beside, logits = projected // 2, queries * shape.reads * (tokens + shape.prefix)
        nbytes = 4 if platform == "tpu" else 4 + size
    else:
        beside, logits, nbytes = projected, queries * tokens * (shape.width + shape.prefix), size
    attending = beside + attention.heads_together(kv_heads, logits, platform) * logits * nbytes
    mlp = (3 if config.gated_mlp else 2) * tokens * config.mlp_width // model * size
    return streams + max(projected, attending, mlp, 4 * shape.reads * config.vocab_size // model)
