"""Memory of the pass's programs by XLA: they are compiled ahead of time, from shapes alone, for devices that need not exist."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax import parallel
from knnprompt_jax.lm import programs
from knnprompt_jax.models import attention, registry, sharding
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.prompts import packing


def mesh_of(devices: list[Any], data: int, model: int) -> Mesh:
    """Return a mesh of the first devices, arranged like `parallel.make_mesh`."""
    used = devices[: data * model]
    return jax.make_mesh((data, model), parallel.AXES, axis_types=(AxisType.Auto,) * 2, devices=used)


def abstract(config: config_lib.DecoderConfig, dtype: str, mesh: Mesh) -> tuple[Any, Any]:
    """Return the graph of a decoder, and the shapes, dtypes and shardings of its weights."""
    graph, params = nnx.split(registry.abstract(config, config_lib.DTYPES[dtype]))
    place = sharding.placement(config, mesh)
    params = nnx.from_flat_state(
        {
            path: leaf.replace(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place(".".join(map(str, path)))))
            for path, leaf in nnx.to_flat_state(params)
        }
    )
    return graph, params


def pass_memory(config: config_lib.DecoderConfig, dtype: str, shape: packing.PackShape, mesh: Mesh) -> dict[str, Any]:
    """Compile the programs "prefix" and "suffixes" of a packing and return XLA's analysis of their memory per device.

    Raises:
        JaxRuntimeError: the compiler fails, for example because the memory of the devices does not hold a program.
    """
    graph, params = abstract(config, dtype, mesh)

    def array(shape: tuple[int, ...], dtype: Any = jnp.int32, spec: P | None = None) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec or P()))

    kv_shape = config.num_layers, max(config.num_kv_heads, mesh.shape[parallel.MODEL]), shape.prefix, config.head_size
    kv = array(kv_shape, config_lib.DTYPES[dtype], P(None, parallel.MODEL))
    data, steps, rows = mesh.shape[parallel.DATA], programs.STEPS_PER_CALL, P(None, parallel.DATA)
    tokens = array((steps, data * shape.rows, shape.width), spec=rows)
    reads = array((steps, data * shape.reads), spec=rows)
    with jax.default_matmul_precision("highest"):
        lowered = {
            "prefix": programs.read_prefix.lower(graph, mesh, params, array((shape.prefix,)), array(())),
            "suffixes": programs.map_steps.lower(
                *(graph, mesh, params, attention.Prefix(kv, kv, array(())), array((steps,), jnp.bool_)),
                *(tokens, tokens, tokens, reads),
                function=programs.reader(False, ()),
                stable_softmax=attention.is_in_kernel(shape.prefix, mesh.devices.flat[0].platform),
            ),
        }
        return {name: program.compile().memory_analysis() for name, program in lowered.items()}
