"""The programs of a job, traced for a mesh from shapes alone: no weight and no row is ever there."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from knnprompt_jax import lm, parallel
from knnprompt_jax.lm import programs
from knnprompt_jax.models import attention, registry, sharding
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.prompts import packing
from knnprompt_jax.store import dense, distances, factored, kernel, placement, representations
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.store import store as store_lib

PREFIX, SUFFIXES, SCORES, SEARCH = NAMES = ("prefix", "suffixes", "scores", "search")


@dataclasses.dataclass(frozen=True)
class Search:
    """A search to be planned: so many anchors and queries, and how they are stored and compared."""

    anchors: int
    queries: int
    k: int
    distance: str
    store: store_lib.StoreOptions


@dataclasses.dataclass(frozen=True)
class Job:
    """What the programs are traced for: a model, the type of its weights, a packing, a search."""

    config: config_lib.DecoderConfig
    dtype: str
    shape: packing.PackShape
    search: Search

    @property
    def activations(self) -> Any:
        """The type of what passes between layers."""
        return config_lib.activations(config_lib.DTYPES[self.dtype])


def mesh_of(devices: list[Any], data: int, model: int) -> Mesh:
    """The first of the devices as a mesh, as `parallel.make_mesh` lays them out."""
    used = devices[: data * model]
    return jax.make_mesh((data, model), parallel.AXES, axis_types=(AxisType.Auto,) * 2, devices=used)


def trace(name: str, job: Job, mesh: Mesh) -> jax.stages.Traced:
    """One of the programs `NAMES`, traced as a run traces it. Raises UserError as `sharding.check`, and as `Store.plan`."""
    if name == SEARCH:
        return _search(job, mesh)
    graph, params = _weights(job, mesh)
    with jax.default_matmul_precision("highest"):
        if name == PREFIX:
            tokens_P, length = _array(mesh, (job.shape.prefix,)), _array(mesh, ())
            return programs.read_prefix.trace(graph, mesh, params, tokens_P, length)
        data, rows = mesh.shape[parallel.DATA], P(None, parallel.DATA)
        steps = programs.STEPS_PER_CALL
        tokens = _array(mesh, (steps, data * job.shape.rows, job.shape.width), spec=rows)
        reads = _array(mesh, (steps, data * job.shape.reads), spec=rows)
        scores = name == SCORES
        return programs.each_step.trace(
            *(graph, mesh, params, _prefix(job, mesh), _array(mesh, (steps,), jnp.bool_)),
            *(tokens, tokens, tokens, *[reads] * (1 + scores)),
            function=programs.score_suffixes if scores else programs.read_suffixes,
            stable_softmax=attention.is_in_kernel(job.shape.prefix, mesh.devices.flat[0].platform),
        )


def store_bytes(job: Job, devices: int) -> int:
    """Bytes of the anchors on each of so many devices, and of the head that encodes them, whole and in float32 there."""
    head = 4 * job.config.vocab_size * job.config.state_width
    return placement.row_bytes(_anchors(job, 1)) * math.ceil(job.search.anchors / devices) + head


def _weights(job: Job, mesh: Mesh) -> tuple[nnx.GraphDef, nnx.State]:
    graph, params = nnx.split(registry.abstract(job.config, config_lib.DTYPES[job.dtype]))
    where = sharding.placement(job.config, mesh)
    flat = {
        path: leaf.replace(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where(".".join(map(str, path)))))
        for path, leaf in nnx.to_flat_state(params)
    }
    return graph, nnx.from_flat_state(flat)


def _prefix(job: Job, mesh: Mesh) -> attention.Prefix:
    config = job.config
    heads = max(config.num_kv_heads, mesh.shape[parallel.MODEL])
    shape = (config.num_layers, heads, job.shape.prefix, config.head_size)
    kv = _array(mesh, shape, job.activations, P(None, parallel.MODEL))
    return attention.Prefix(kv, kv, _array(mesh, ()))


def _search(job: Job, mesh: Mesh) -> jax.stages.Traced:
    options = search_lib.SearchOptions(job.search.k, job.search.distance)
    codec, anchors = _codec(job), _anchors(job, placement.filled_up(job.search.anchors, mesh))
    memory = int(job.search.store.memory_mb * 2**20)
    plan = search_lib.make_plan(codec, anchors, job.search.queries, options, memory, mesh)
    distance = distances.get(options.distance)
    queries = jax.eval_shape(lambda states: codec.queries(states, distance), _states(job, plan.queries_per_block))
    keys = jax.eval_shape(lambda keys: codec.references(keys, distance), anchors.keys)

    def placed(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=placement.by_rows(mesh, len(leaf.shape)))

    return kernel.search_sharded.trace(
        jax.tree.map(lambda leaf: _array(mesh, leaf.shape, leaf.dtype), queries),
        jax.tree.map(placed, keys),
        placed(anchors.labels_N),
        **{"mesh": mesh, "axes": parallel.AXES, "k": options.k, "distance": codec.measured_by(distance)},
        **{"tile_bytes": plan.tile_bytes, "approximate_recall": None},
    )


def _codec(job: Job) -> Any:
    """The codec of abstract arrays: what it makes of states has shapes and types."""
    options = job.search.store
    kind = store_lib.KINDS[store_lib.kind_of(options, job.search.distance, job.config.logit_cap)]
    dtype, (rows, width) = job.activations, (job.config.vocab_size, job.config.state_width)
    head = head_lib.Head(_abstract((rows, width), dtype), job.config.logit_cap)
    kept: dict[str, Any] = {"key_dtype": options.key_dtype, "built_for": job.search.distance}

    def make(head: head_lib.Head, states: lm.States) -> tuple[Any, Any]:
        codec = kind.make(head, (0, 1), kind.constants_of(head, states), **kept)
        return codec.head, codec.constants

    head, constants = jax.eval_shape(make, head, _states(job, 1))
    return kind(head, (0, 1), constants, **kept)


def _anchors(job: Job, count: int) -> placement.Anchors:
    """The keys that a codec's `encode` makes of so many states, and their classes."""
    search, float32 = job.search, jnp.float32
    kind = store_lib.kind_of(search.store, search.distance, job.config.logit_cap)
    dtype = jnp.dtype(search.store.key_dtype)
    labels_N = _abstract((count,), jnp.int32)
    if kind == factored.Codec.kind:
        hidden_NE = _abstract((count, job.config.state_width), dtype)
        log_z_N = _abstract((count,), float32)
        both = search.distance == "released"
        return placement.Anchors(factored.Keys(hidden_NE, log_z_N, *[hidden_NE, log_z_N] if both else []), labels_N)
    states = _states(job, count)
    head = head_lib.Head(_abstract((job.config.vocab_size, job.config.state_width), float32))
    kept = distances.get(search.distance).representation
    values = jax.eval_shape(lambda head, states: representations.represent(head, states, kept, (0, 1)), head, states)
    return placement.Anchors(dense.Keys(_abstract(values.shape, dtype)), labels_N)


def _states(job: Job, count: int) -> lm.States:
    hidden_NE = _abstract((count, job.config.state_width), jnp.float32)
    return lm.States(hidden_NE, _abstract((count,), jnp.float32))


def _abstract(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def _array(mesh: Mesh, shape: tuple[int, ...], dtype: Any = jnp.int32, spec: P | None = None) -> Any:
    """An abstract array that lies on the mesh, whole on each device where no `spec` splits it."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec or P()))
