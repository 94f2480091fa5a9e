"""Memory of the pass's programs by XLA: they are compiled ahead of time, from shapes alone, for devices that need not exist."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.errors import JaxRuntimeError
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax import parallel
from knnprompt_jax.lm import programs
from knnprompt_jax.models import attention, registry, sharding
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.prompts import packing


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of a program on each device by XLA's memory analysis. `error` says why it could not be compiled."""

    arguments: int = 0
    outputs: int = 0
    temporaries: int = 0
    peak: int = 0
    error: str = ""


def mesh_of(devices: list[Any], data: int, model: int) -> Mesh:
    """Return a mesh of the first devices, laid out like `parallel.make_mesh`."""
    used = devices[: data * model]
    return jax.make_mesh((data, model), parallel.AXES, axis_types=(AxisType.Auto,) * 2, devices=used)


def of_pass(config: config_lib.DecoderConfig, dtype: str, shape: packing.PackShape, mesh: Mesh) -> dict[str, Memory]:
    """Compile the programs "prefix" and "suffixes" of a packing and return their memory."""
    graph, params = nnx.split(registry.abstract(config, config_lib.DTYPES[dtype]))
    place = sharding.placement(config, mesh)
    params = nnx.from_flat_state(
        {
            path: leaf.replace(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place(".".join(map(str, path)))))
            for path, leaf in nnx.to_flat_state(params)
        }
    )

    def array(shape: tuple[int, ...], dtype: Any = jnp.int32, spec: P | None = None) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec or P()))

    kv_shape = config.num_layers, max(config.num_kv_heads, mesh.shape[parallel.MODEL]), shape.prefix, config.head_size
    kv = array(kv_shape, config_lib.activations(config_lib.DTYPES[dtype]), P(None, parallel.MODEL))
    data, steps, rows = mesh.shape[parallel.DATA], programs.STEPS_PER_CALL, P(None, parallel.DATA)
    tokens = array((steps, data * shape.rows, shape.width), spec=rows)
    reads = array((steps, data * shape.reads), spec=rows)
    calls: dict[str, Any] = {
        "prefix": lambda: programs.read_prefix.lower(graph, mesh, params, array((shape.prefix,)), array(())),
        "suffixes": lambda: programs.each_step.lower(
            *(graph, mesh, params, attention.Prefix(kv, kv, array(())), array((steps,), jnp.bool_)),
            *(tokens, tokens, tokens, reads),
            function=programs.read_suffixes,
            stable_softmax=attention.is_in_kernel(shape.prefix, mesh.devices.flat[0].platform),
        ),
    }
    found = {}
    for name, lower in calls.items():
        try:
            with jax.default_matmul_precision("highest"):
                analysis = lower().compile().memory_analysis()
        except JaxRuntimeError as error:  # Out of memory, for example.
            found[name] = Memory(error=" ".join(str(error).split()))
            continue
        found[name] = Memory(
            analysis.argument_size_in_bytes,
            analysis.output_size_in_bytes,
            analysis.temp_size_in_bytes,
            analysis.peak_memory_in_bytes,
        )
    return found
