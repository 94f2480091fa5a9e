"""The jitted programs of the language-model pass: the prefix, the packed steps of suffixes, the selection of rows."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import PartitionSpec as P

from knnprompt_jax.common import parallel
from knnprompt_jax.inference.prompts import packing
from knnprompt_jax.models import attention, decoder, sharding

Array = jax.Array
STEPS_PER_CALL = 4
_STEP_TOKENS_ON_CPU = 2560
_STEP_TOKENS = 16384


def step_tokens(platform: str) -> int:
    """Return the default number of packed tokens per step in each data shard."""
    return _STEP_TOKENS_ON_CPU if platform == "cpu" else _STEP_TOKENS


@functools.partial(jax.jit, static_argnums=(0, 1))
def read_prefix(
    graph: nnx.GraphDef, mesh: jax.sharding.Mesh, params: nnx.State, tokens_P: Array, length: Array
) -> attention.Prefix:
    """Return the keys and values of the prefix, split by head over `model`; tokens from `length` on are padding."""
    with jax.named_scope("prefix"), jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        prefix = nnx.merge(graph, params).read_prefix(tokens_P, length)
    heads = jax.NamedSharding(mesh, P(None, parallel.MODEL))
    k_LGPK = jax.lax.with_sharding_constraint(prefix.k, heads)
    v_LGPK = jax.lax.with_sharding_constraint(prefix.v, heads)
    return attention.Prefix(k_LGPK, v_LGPK, length)


def read_suffixes(
    model: decoder.Decoder, mesh: jax.sharding.Mesh, step: packing.Step, **options: Any
) -> tuple[Any, ...]:
    """Return the hidden states [J, E], log-partitions [J] and requested blocks' outputs [J, D]."""
    with jax.named_scope("suffixes"):
        hidden_JE, outputs = model.read_suffixes(step, **options)
    with jax.named_scope("log_partition"):
        if not sharding.splits_vocabulary(model.config, mesh):  # Then split the prompts.
            hidden_JE = jax.lax.with_sharding_constraint(hidden_JE, P(parallel.MODEL))
        return hidden_JE, jax.nn.logsumexp(model.head.logits(hidden_JE), -1), outputs


@functools.cache  # Each new function would compile a program.
def suffix_reader(deterministic: bool, blocks: tuple[int, ...]) -> Callable[..., tuple[Any, ...]]:
    """Return `read_suffixes` with the outputs of these blocks.

    A deterministic model runs its last block on whole rows, like the other blocks, and not only on the outputs.
    """
    return functools.partial(read_suffixes, whole_last_block=deterministic, blocks=blocks)


def score_suffixes(
    model: decoder.Decoder, mesh: jax.sharding.Mesh, step: packing.Step, targets_J: Array, **options: Any
) -> tuple[Array, Array]:
    """Return log p [J] (float32, nats) of the target tokens, and whether each is the likeliest."""
    del mesh
    with jax.named_scope("score"):
        hidden_JE, _ = model.read_suffixes(step, **options, whole_last_block=True)
        return model.head.log_probabilities(hidden_JE, targets_J)


@functools.partial(jax.jit, static_argnums=(0, 1), static_argnames=("function", "use_kernel"))
def map_steps(
    graph: nnx.GraphDef,
    mesh: jax.sharding.Mesh,
    params: nnx.State,
    prefix: attention.Prefix,
    active_T: Array,
    steps: packing.Step,
    *extra_TJ: Array,
    function: Callable[..., Any],
    use_kernel: bool,
) -> Any:
    """Apply `function` to each packed step, and its `extra_TJ`, and return its outputs as [T, J, …].

    B and J count the rows and outputs of all data shards. Each data shard runs its steps one after the other; inactive
    steps cost nothing.
    """

    def run_shard(params: nnx.State, prefix: attention.Prefix, active_T: Array, *arguments_T: Any) -> Any:
        model = nnx.merge(graph, params)

        @functools.partial(jax.jit, inline=True)  # Traced once for both uses below.
        def apply(arguments: tuple[Any, ...]) -> Any:
            return function(model, mesh, *arguments, prefix=prefix, use_kernel=use_kernel)

        def body(_: None, active_and_arguments: tuple[Array, tuple[Any, ...]]) -> tuple[None, Any]:
            active, arguments = active_and_arguments
            empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(apply, arguments))
            return None, jax.lax.cond(active, apply, lambda _: empty, arguments)

        return jax.lax.scan(body, None, (active_T, arguments_T))[1]

    rows = P(None, parallel.DATA)
    specs = (P(), P(), P(), rows, *[rows] * len(extra_TJ))
    # Manual only over `data`, so that no shard's loops wait for another's; `model` stays with the compiler.
    sharded = jax.shard_map(
        run_shard, mesh=mesh, in_specs=specs, out_specs=rows, axis_names={parallel.DATA}, check_vma=False
    )
    return sharded(params, prefix, active_T, steps, *extra_TJ)


@jax.jit
def all_finite(outputs: Any) -> Array:
    """Return whether all numbers of some arrays are finite; the same on every device."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(outputs)]).all()


@functools.partial(jax.jit, static_argnames="sharding")
def select(outputs: Sequence[Any], slot_N: Array, sharding: jax.NamedSharding) -> Any:
    """Select rows by slot from the outputs [T, J, …] of several calls, concatenated."""
    flat = [jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), output) for output in outputs]
    rows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[slot_N], *flat)
    return jax.lax.with_sharding_constraint(rows, sharding)


def deal(array_T: np.ndarray, data: int) -> np.ndarray:
    """Pad at most STEPS_PER_CALL · data steps [B, …] and deal them to the shards: [STEPS_PER_CALL, data · B, …].

    Step i · data + d is step i of shard d, so outputs [STEPS_PER_CALL, data · J] flatten in the order of steps.
    """
    steps, size, *rest = array_T.shape
    padding = [(0, STEPS_PER_CALL * data - steps)] + [(0, 0)] * (array_T.ndim - 1)
    return np.pad(array_T, padding).reshape(STEPS_PER_CALL, data * size, *rest)
