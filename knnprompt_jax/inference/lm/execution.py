"""Run packed prompts through a decoder's jitted programs: the prefix, the steps of suffixes, the selection of rows.

A program is compiled once per shape. Calls are queued on the devices, and their outputs are checked for overflow.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import PartitionSpec as P

from knnprompt_jax.common import errors, parallel
from knnprompt_jax.inference.prompts import layout, packing
from knnprompt_jax.models import attention, kernel_proof, sharding
from knnprompt_jax.models import decoder as decoder_lib
from knnprompt_jax.models import head as head_lib

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
    model: decoder_lib.Decoder, mesh: jax.sharding.Mesh, step: packing.Step, **options: Any
) -> tuple[Any, ...]:
    """Return the hidden states [J, E], log-partitions [J] and requested activations [J, D]."""
    with jax.named_scope("suffixes"):
        hidden_JE, outputs = model.read_suffixes(step, **options)
    with jax.named_scope("log_partition"):
        if not sharding.splits_vocabulary(model.config, mesh):  # Then split the prompts.
            hidden_JE = jax.lax.with_sharding_constraint(hidden_JE, P(parallel.MODEL))
        return hidden_JE, jax.nn.logsumexp(model.head.logits(hidden_JE), -1), outputs


@functools.cache  # Each new function would compile a program.
def suffix_reader(deterministic: bool, activations: tuple[head_lib.Activation, ...]) -> Callable[..., tuple[Any, ...]]:
    """Return `read_suffixes` with these activations.

    A deterministic model runs its last block on whole rows, like the other blocks, and not only on the outputs.
    """
    return functools.partial(read_suffixes, whole_last_block=deterministic, activations=activations)


def score_suffixes(
    model: decoder_lib.Decoder, mesh: jax.sharding.Mesh, step: packing.Step, targets_J: Array, **options: Any
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


@functools.partial(jax.jit, static_argnames="mesh")
def select(outputs: Sequence[Any], slots_Dn: Array, mesh: jax.sharding.Mesh) -> Any:
    """Select rows [D, n, …] by slot from the outputs [T, D · J, …] of several calls.

    Each data shard selects from its own outputs; a slot is an index into its outputs [T, J] of all calls.
    """

    def select_shard(outputs: Sequence[Any], slots_1n: Array) -> Any:
        flat = [jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), output) for output in outputs]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[slots_1n], *flat)

    specs = (P(None, parallel.DATA), P(parallel.DATA))
    by_shard = jax.shard_map(
        select_shard, mesh=mesh, in_specs=specs, out_specs=P(parallel.DATA), axis_names={parallel.DATA}, check_vma=False
    )
    return by_shard(outputs, slots_Dn)


class Call(NamedTuple):
    """A call that is queued on the devices.

    Attributes:
        output: the outputs of its steps, [T, D · J, …].
        is_finite: whether they are.
        num_prompts: the number of prompts that it reads.
        num_tokens: the number of their tokens.
    """

    output: Any
    is_finite: Array
    num_prompts: int
    num_tokens: int


@dataclasses.dataclass
class PassStatistics:
    """The cost of all passes of a model.

    Attributes:
        prompts: prompts that the model read.
        prefix_tokens: tokens of prefixes that the model read, without padding.
        requested_prompts: distinct requested prompts, cached prompts included.
        compile_seconds: wall time of compilation.
        compilations: the number of compiled programs.
    """

    prompts: int = 0
    prefix_tokens: int = 0
    requested_prompts: int = 0
    compile_seconds: float = 0.0
    compilations: int = 0


class Execution:
    """A decoder on a mesh with its compiled programs and their cost so far.

    Attributes:
        mesh: the devices that hold the weights.
        statistics: sums over all passes.
    """

    def __init__(self, model: decoder_lib.Decoder, name: str, mesh: jax.sharding.Mesh, statistics: PassStatistics):
        """Place the weights on the mesh; `name` is what messages call the model."""
        self.mesh = mesh
        self.statistics = statistics
        self._name = name
        self._config = model.config
        self._dtype = model.dtype
        self._graph, params = nnx.split(model)
        self._params = sharding.place(params, model.config, mesh)
        self._compiled: dict[Any, Any] = {}
        self._prefix_in_memory: tuple[Any, attention.Prefix] | None = None

    @property
    def decoder(self) -> decoder_lib.Decoder:
        """The decoder with its weights on the mesh."""
        return nnx.merge(self._graph, self._params)

    @functools.cached_property
    def head(self) -> head_lib.Head:
        """The output head."""
        return self.decoder.head

    @functools.cached_property
    def has_kernel(self) -> bool:
        """Whether `prefix_kernel` computes attention; its first use on a kind of device compares it with XLA's."""
        return kernel_proof.is_trusted(self.mesh, self._config, self._dtype)

    def free_prefix(self) -> None:
        """Free the keys and values of the prefix that was read last."""
        self._prefix_in_memory = None

    def pack(
        self, group: layout.PromptGroup, shape: packing.PackShape, local: Collection[int] | None = None
    ) -> packing.PackedPrompts:
        """Pack a group's prompts into steps; `local` are the data shards to pack, by default all.

        Raises:
            UserError: a token is not in the model's vocabulary.
        """
        largest = int(max(group.prefix_P.max(initial=0), group.suffixes.tokens_T.max()))
        if largest >= self._config.vocab_size:
            raise errors.UserError(
                f"{self._name}: a prompt has token id {largest}, but the model has {self._config.vocab_size} tokens: "
                "take the model's own tokenizer, or remove the special token from the text"
            )
        return packing.pack(group, shape, self.mesh.shape[parallel.DATA], local, parallel.largest_of_all)

    def queue(
        self, packed: packing.PackedPrompts, function: Callable[..., Any], *extra_TDJ: np.ndarray
    ) -> Iterator[Call]:
        """Queue, one by one, the calls that apply `score_suffixes` or a `suffix_reader` to all packed steps.

        The prefix stays in device memory for the next group that has the same, until `free_prefix`.

        Args:
            packed: the packed steps of a group.
            function: `score_suffixes` or a result of `suffix_reader`.
            extra_TDJ: further arguments of the function for each step.
        """
        self.statistics.prompts += len(packed.slot_N)
        prefix = self._read_prefix(packed)
        use_kernel = bool(packed.prefix_length) and self.has_kernel
        # All steps have about as many outputs; the steps of other processes are not known here.
        num_prompts_T = np.diff(np.linspace(0, len(packed.slot_N), packed.num_steps + 1).astype(int))
        for start in range(0, packed.num_steps, STEPS_PER_CALL):
            steps = slice(start, start + STEPS_PER_CALL)
            put_steps = functools.partial(self._put_steps, steps=steps)
            arguments = jax.tree.map(put_steps, (packed.steps, *extra_TDJ))
            active_T = np.arange(start, start + STEPS_PER_CALL) < packed.num_steps
            output = self._call(
                map_steps, prefix, self._put(active_T), *arguments, function=function, use_kernel=use_kernel
            )
            num_prompts = int(num_prompts_T[steps].sum())
            yield Call(output, all_finite(output), num_prompts, int(packed.lengths_TD[steps].sum()))

    def wait(self, call: Call) -> None:
        """Wait for a call; raise UserError if one of its outputs is not finite."""
        if not call.is_finite:
            raise errors.UserError(
                f"{self._name}: some next-token distributions are not finite: the weights are damaged or overflow in "
                f"{self.decoder.head.rows_VE.dtype}"
            )

    def select(self, calls: Sequence[Call], packed: packing.PackedPrompts) -> Any:
        """Queue the selection of each prompt's outputs, [D, n, …]; this process can read all of them.

        The i-th row of a data shard is its i-th prompt; n and the number of calls are rounded up to few sizes, because
        each takes a compilation.
        """
        most = int(np.bincount(packed.shard_N).max())
        size = parallel.round_up(most, max(8, parallel.next_power_of_two(most) // 8))
        slots_Dn = np.zeros((self.mesh.shape[parallel.DATA], size), np.int32)
        slots_Dn[packed.shard_N, packed.number_in_shard_N] = packed.slot_N
        outputs = [call.output for call in calls]
        outputs += outputs[-1:] * (parallel.next_power_of_two(len(outputs)) - len(outputs))
        selected = select(outputs, self._put(slots_Dn, parallel.DATA), self.mesh)
        return jax.tree.map(lambda rows: rows if rows.is_fully_addressable else parallel.replicate(rows), selected)

    def _read_prefix(self, packed: packing.PackedPrompts) -> attention.Prefix:
        """Return the keys and values of the prefix: from memory or, if they are not there, computed."""
        key = (packed.prefix_length, packed.prefix_P.tobytes())
        in_memory = self._prefix_in_memory  # Another thread may free it.
        if in_memory and in_memory[0] == key:
            return in_memory[1]
        if not packed.prefix_length:
            heads = max(self._config.num_kv_heads, self.mesh.shape[parallel.MODEL])  # Every shard has one.
            shape = (self._config.num_layers, heads, len(packed.prefix_P), self._config.head_size)
            empty_LGPK = self._put(np.zeros(shape, jnp.dtype(self._dtype)), None, parallel.MODEL)
            return attention.Prefix(empty_LGPK, empty_LGPK, self._put(np.int32(0)))
        prefix = self._call(read_prefix, self._put(packed.prefix_P), self._put(np.int32(packed.prefix_length)))
        self.statistics.prefix_tokens += packed.prefix_length
        self._prefix_in_memory = (key, prefix)
        return prefix

    def _put_steps(self, array_TD: np.ndarray, steps: slice) -> Array:
        """Put at most STEPS_PER_CALL steps [T, D, B, …] on the data shards as [STEPS_PER_CALL, D · B, …]."""
        chosen = array_TD[steps]
        _, shards, size, *rest = chosen.shape
        padding = [(0, STEPS_PER_CALL - len(chosen))] + [(0, 0)] * (chosen.ndim - 1)
        return self._put(np.pad(chosen, padding).reshape(STEPS_PER_CALL, shards * size, *rest), None, parallel.DATA)

    def _put(self, array: np.ndarray | np.int32, *axes: str | None) -> Array:
        """Put an array on the mesh, split over these axes."""
        return parallel.put(np.asarray(array), self.mesh, P(*axes))

    def _call(self, program: jax.stages.Wrapped, *arguments: Any, **static: Any) -> Any:
        """Call a jitted program, which is compiled once per shape, ahead of the call so that compile time is known."""
        key = (program, *static.values(), *(jnp.shape(leaf) for leaf in jax.tree.leaves(arguments)))
        if key not in self._compiled:
            started = time.monotonic()
            # Full float32 products: accelerators would otherwise round the operands of the reference mode.
            with jax.default_matmul_precision("highest"):
                lowered = program.lower(self._graph, self.mesh, self._params, *arguments, **static)
                self._compiled[key] = lowered.compile()
            self.statistics.compile_seconds += time.monotonic() - started
            self.statistics.compilations += 1
        return self._compiled[key](self._params, *arguments)
