"""Sharding of weights: one table of logical axes, split over the mesh axis `model`."""

from collections.abc import Callable, Mapping

import jax
from flax import nnx
from jax.experimental.layout import Format, Layout
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax.common import errors, parallel
from knnprompt_jax.models import config as config_lib

AnyMesh = Mesh | AbstractMesh

# The logical axes of the weights that are split. All others are replicated on every device. The first axis of `blocks`
# is the layer: q_kernel [L, D, H, K].
_WEIGHT_AXES: Mapping[str, tuple[str | None, ...]] = {
    "tokens": ("vocabulary",),
    "head_rows": ("vocabulary",),
    "head_bias": ("vocabulary",),
    "blocks.attention.q_kernel": (None, None, "heads"),
    "blocks.attention.q_bias": (None, "heads"),
    "blocks.attention.kv_kernel": (None, None, None, "kv_heads"),
    "blocks.attention.kv_bias": (None, None, "kv_heads"),
    "blocks.attention.out_kernel": (None, "heads"),
    "blocks.mlp.up_kernel": (None, None, "mlp"),
    "blocks.mlp.up_bias": (None, "mlp"),
    "blocks.mlp.gate_up_kernel": (None, None, None, "mlp"),
    "blocks.mlp.gate_up_bias": (None, None, "mlp"),
    "blocks.mlp.down_kernel": (None, "mlp"),
}

# The order of dimensions in a TPU's memory, for weights whose default order differs from the order that matrix products
# and look-ups read. With the default every call would copy all layers.
_TPU_LAYOUTS: Mapping[str, tuple[int, ...]] = {
    "tokens": (0, 1),
    "positions": (0, 1),
    "head_rows": (0, 1),
    "blocks.mlp.gate_up_kernel": (0, 2, 1, 3),
}
_REGISTER = 128  # Numbers in a row of a TPU's registers.


def check(config: config_lib.DecoderConfig, mesh: AnyMesh) -> None:
    """Raise UserError, with the possible sizes, if the model's heads or MLP cannot be split over the mesh.

    There may be fewer key heads than shards if they divide the shards. Several shards then hold the same key head.
    """
    model_shards = mesh.shape[parallel.MODEL]
    if parts := uneven(config, model_shards):
        possible = [size for size in range(1, len(jax.devices()) + 1) if not uneven(config, size)]
        advice = f"choose from {errors.join_names(possible)}"
        raise errors.UserError(f"mesh model={model_shards} does not divide the model's {' and '.join(parts)}: {advice}")


def uneven(config: config_lib.DecoderConfig, model_shards: int) -> list[str]:
    """Return the parts of the model that cannot be split over `model_shards` devices."""
    sizes = {"heads": config.num_heads, "MLP columns": config.mlp_width}
    parts = [f"{size} {name}" for name, size in sizes.items() if size % model_shards]
    kv_heads = config.num_kv_heads
    fit = kv_heads % model_shards == 0 or model_shards % kv_heads == 0
    return parts if fit or parts else [f"{kv_heads} key and value heads"]


def model_axes(config: config_lib.DecoderConfig, num_devices: int) -> list[int]:
    """Return the sizes of the mesh axis `model` that divide the number of devices and the model."""
    return [size for size in range(1, num_devices + 1) if num_devices % size == 0 and not uneven(config, size)]


def splits_vocabulary(config: config_lib.DecoderConfig, mesh: AnyMesh) -> bool:
    """Return whether the rows of embeddings and head are split. Otherwise every device has all of them."""
    return config.vocab_size % mesh.shape[parallel.MODEL] == 0


def shardings(config: config_lib.DecoderConfig, mesh: AnyMesh) -> Callable[[str], NamedSharding]:
    """Return the sharding of each weight as a function of its path.

    JAX splits a dimension evenly or not at all. A vocabulary that does not divide (GPT-2's 50,257 is odd) is
    replicated, and the work of computing logits is split by prompt instead. Padding rows would be visible to every
    reader of the head.
    """
    check(config, mesh)
    vocabulary = parallel.MODEL if splits_vocabulary(config, mesh) else None
    kv_heads = parallel.MODEL if config.num_kv_heads % mesh.shape[parallel.MODEL] == 0 else None
    split = parallel.MODEL
    mesh_axes = {"heads": split, "kv_heads": kv_heads, "mlp": split, "vocabulary": vocabulary, None: None}

    def sharding_of(path: str) -> NamedSharding:
        return NamedSharding(mesh, P(*(mesh_axes[axis] for axis in _WEIGHT_AXES.get(path, ()))))

    return sharding_of


def placement(config: config_lib.DecoderConfig, mesh: Mesh) -> Callable[[str], NamedSharding | Format]:
    """Return where each weight goes, by its path: its sharding and, on a TPU, its layout in memory."""
    sharding_of = shardings(config, mesh)
    layouts = _layouts(config, mesh)

    def place(path: str) -> NamedSharding | Format:
        return Format(Layout(layouts[path]), sharding_of(path)) if path in layouts else sharding_of(path)

    return place


def _layouts(config: config_lib.DecoderConfig, mesh: Mesh) -> Mapping[str, tuple[int, ...]]:
    """Return the orders of dimensions that differ from the devices' default."""
    device = mesh.abstract_mesh.abstract_device
    if not device or device.platform != "tpu":
        return {}
    layouts = dict(_TPU_LAYOUTS)
    if config.head_size % _REGISTER == 0:
        model_shards = mesh.shape[parallel.MODEL]
        kv_heads = config.num_kv_heads
        kv_heads_here = kv_heads if kv_heads % model_shards else kv_heads // model_shards
        layouts["blocks.attention.kv_kernel"] = (0, 2, 1, 3, 4) if _fill_tiles(kv_heads_here) else (0, 2, 3, 4, 1)
        if not _fill_tiles(config.num_heads // model_shards):
            layouts["blocks.attention.q_kernel"] = (0, 2, 3, 1)
    return layouts


def _fill_tiles(heads: int) -> bool:
    """Return whether heads fill the rows of a TPU's tiles; otherwise the model's width must be the last dimension."""
    return heads % 8 == 0 or heads in (2, 4)


def place(params: nnx.State, config: config_lib.DecoderConfig, mesh: Mesh) -> nnx.State:
    """Move the weights to their devices. Weights that are there already are not copied."""
    place_of = placement(config, mesh)
    return nnx.map_state(lambda path, leaf: jax.device_put(leaf, place_of(".".join(map(str, path)))), params)
