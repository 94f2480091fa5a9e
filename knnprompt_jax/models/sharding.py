"""Where weights lie: one table of logical axes, split over the mesh axis `model`."""

import types
from collections.abc import Callable, Mapping

import jax
from flax import nnx
from jax.experimental.layout import Format, Layout
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax import errors, parallel
from knnprompt_jax.models import config as config_lib

AnyMesh = Mesh | AbstractMesh

# The logical axis of each dimension of a weight that is split; all other weights lie whole on every device.
WEIGHT_AXES = types.MappingProxyType(
    {
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
        # Scales of kernels in 8 bits, which have sides of 1 along the axes that a product sums over.
        "blocks.attention.q_kernel_scale": (None, None, "heads"),
        "blocks.attention.kv_kernel_scale": (None, None, None, "kv_heads"),
        "blocks.mlp.up_kernel_scale": (None, None, "mlp"),
        "blocks.mlp.gate_up_kernel_scale": (None, None, None, "mlp"),
    }
)

# The order of a weight's dimensions in the memory of a TPU, where the compiler's default is another than its matrix products and
# look-ups read: they would copy all layers at every call.
_TPU_LAYOUTS = types.MappingProxyType(
    {
        "tokens": (0, 1),
        "positions": (0, 1),
        "head_rows": (0, 1),
        "blocks.mlp.gate_up_kernel": (0, 2, 1, 3),
    }
)
_REGISTER = 128  # Numbers in a row of a TPU's registers.


def check(config: config_lib.DecoderConfig, mesh: AnyMesh) -> None:
    """Raises UserError, with the sizes that would do, where the model's heads or MLP cannot be split over the mesh.

    Key and value heads may be fewer than the shards, if they divide them: then several shards keep the same one.
    """
    model = mesh.shape[parallel.MODEL]
    if uneven := _uneven(config, model):
        would = [size for size in range(1, len(jax.devices()) + 1) if divides(config, size)]
        raise errors.UserError(
            f"mesh.model={model} does not divide the model's {' and '.join(uneven)}: choose from {parallel.listed(would)}"
        )


def divides(config: config_lib.DecoderConfig, model: int) -> bool:
    """Whether the model can be split over so many devices."""
    return not _uneven(config, model)


def _uneven(config: config_lib.DecoderConfig, model: int) -> list[str]:
    sizes = {"heads": config.num_heads, "MLP columns": config.mlp_width}
    uneven = [f"{size} {name}" for name, size in sizes.items() if size % model]
    kv_heads = config.num_kv_heads
    fit = kv_heads % model == 0 or model % kv_heads == 0
    return uneven if fit or uneven else [f"{kv_heads} key and value heads"]


def splits_vocabulary(config: config_lib.DecoderConfig, mesh: AnyMesh) -> bool:
    """Whether the rows of embeddings and head are split; otherwise every device has all of them."""
    return config.vocab_size % mesh.shape[parallel.MODEL] == 0


def shardings(config: config_lib.DecoderConfig, mesh: AnyMesh) -> Callable[[str], NamedSharding]:
    """How each weight is split, by its path.

    JAX splits a dimension evenly or not at all. So a vocabulary that does not divide (GPT-2's 50,257 is odd) lies whole on
    every device, with its work, the logits, split by prompt instead: that is exact, and padding rows would be seen by all
    who read the head.
    """
    check(config, mesh)
    vocabulary = parallel.MODEL if splits_vocabulary(config, mesh) else None
    kv_heads = parallel.MODEL if config.num_kv_heads % mesh.shape[parallel.MODEL] == 0 else None
    split = parallel.MODEL
    mesh_axes = {"heads": split, "kv_heads": kv_heads, "mlp": split, "vocabulary": vocabulary, None: None}
    return lambda path: NamedSharding(mesh, P(*(mesh_axes[axis] for axis in WEIGHT_AXES.get(path, ()))))


def placement(config: config_lib.DecoderConfig, mesh: Mesh) -> Callable[[str], NamedSharding | Format]:
    """Where each weight lies, by its path: how it is split and, on a TPU, in which order its numbers stand in memory."""
    sharding_of, layouts = shardings(config, mesh), _layouts(config, mesh)

    def place(path: str) -> NamedSharding | Format:
        return Format(Layout(layouts[path]), sharding_of(path)) if path in layouts else sharding_of(path)

    return place


def _layouts(config: config_lib.DecoderConfig, mesh: Mesh) -> Mapping[str, tuple[int, ...]]:
    """The order of dimensions of those weights for which the devices' default is not the best."""
    device = mesh.abstract_mesh.abstract_device
    if not device or device.platform != "tpu":
        return {}
    layouts = dict(_TPU_LAYOUTS)
    if config.head_size % _REGISTER == 0:
        model, kv_heads = mesh.shape[parallel.MODEL], config.num_kv_heads
        kv_heads_here = kv_heads if kv_heads % model else kv_heads // model
        layouts["blocks.attention.kv_kernel"] = (0, 2, 1, 3, 4) if _fill_tiles(kv_heads_here) else (0, 2, 3, 4, 1)
        if not _fill_tiles(config.num_heads // model):
            layouts["blocks.attention.q_kernel"] = (0, 2, 3, 1)
    return layouts


def _fill_tiles(heads: int) -> bool:
    """Whether so many heads fill the rows of a TPU's tiles; otherwise the model's width has to stand last."""
    return heads % 8 == 0 or heads in (2, 4)


def place(params: nnx.State, config: config_lib.DecoderConfig, mesh: Mesh) -> nnx.State:
    """The weights where they belong; those that lie there already are not copied."""
    place_of = placement(config, mesh)
    flat = {path: jax.device_put(leaf, place_of(".".join(map(str, path)))) for path, leaf in nnx.to_flat_state(params)}
    return nnx.from_flat_state(flat)
