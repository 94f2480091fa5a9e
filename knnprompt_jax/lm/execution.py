"""Packed prompts through a decoder's programs: compiled once per shape, enqueued ahead of what is waited for, checked for overflow."""

import collections
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import PartitionSpec as P

from knnprompt_jax import errors, parallel
from knnprompt_jax import progress as progress_lib
from knnprompt_jax.lm import programs
from knnprompt_jax.models import attention, decoder, sharding
from knnprompt_jax.prompts import layout, packing

Array = jax.Array


@dataclasses.dataclass
class PassStatistics:
    """What the passes of a model have cost: prompts, tokens (prefixes, suffixes, packed slots), seconds, compilations."""

    prompts: int = 0
    prefix_tokens: int = 0
    suffix_tokens: int = 0
    slots: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    compilations: int = 0

    @property
    def tokens(self) -> int:
        """Tokens that were read, padding not counted."""
        return self.prefix_tokens + self.suffix_tokens

    @property
    def fill(self) -> float:
        return self.suffix_tokens / max(1, self.slots)


class Execution:
    """A decoder on a mesh, and what it has cost so far.

    Attributes:
      mesh: its devices, which hold the weights.
      statistics: the sums over all passes; `seconds` are for the caller to count.
    """

    def __init__(self, model: decoder.Decoder, name: str, mesh: jax.sharding.Mesh, deterministic: bool):
        """`name` is what messages call the model; a deterministic pass takes the stable softmax at once."""
        self.mesh, self.statistics = mesh, PassStatistics()
        self._name, self._deterministic = name, deterministic
        self._graph, params = nnx.split(model)
        self._params = sharding.place(params, model.config, mesh)
        self._compiled: dict[Any, Any] = {}
        self._kept_prefix: tuple[Any, attention.Prefix] | None = None

    @property
    def decoder(self) -> decoder.Decoder:
        """The decoder, with its weights where they are."""
        return nnx.merge(self._graph, self._params)

    @property
    def platform(self) -> str:
        """Of the devices: cpu, gpu, tpu."""
        return self.mesh.devices.flat[0].platform

    def forget_prefix(self) -> None:
        """Frees the prefix that a pass kept."""
        self._kept_prefix = None

    def pack(self, group: layout.PromptGroup, shape: packing.PackShape) -> packing.PackedPrompts:
        """The group's prompts as packed steps, of which step t belongs to the data shard t modulo their number; a process fills in the
        steps of its shards."""
        data, local = self.mesh.shape[parallel.DATA], parallel.local_data_shards(self.mesh)
        return packing.pack(group, shape, lambda step: step % data in local)

    def read(
        self,
        packed: packing.PackedPrompts,
        progress: progress_lib.Progress | None,
        name: str,
        function: Callable[..., Any],
        *extra_TJ: np.ndarray,
        keep_prefix: bool = False,
    ) -> list[Any]:
        """What a function of `programs` makes of all packed steps, call by call, each in the order [T, J].

        `name` is what the compiled program is kept by. With `keep_prefix` the prefix stays in the devices' memory for the next pass
        that has the same. Raises UserError where an output is not finite.
        """
        prefix = self._prefix(packed, keep_prefix)
        prompts_T = np.bincount(packed.slot_N // packed.shape.reads, minlength=packed.num_steps)
        data = self.mesh.shape[parallel.DATA]
        arrays = (packed.tokens_TBS, packed.stops_TBS, packed.positions_TBS, packed.read_positions_TJ, *extra_TJ)
        ahead, outputs = programs.calls_ahead(self.platform), []
        calls: collections.deque[tuple[slice, Callable[[], Any]]] = collections.deque()

        def finish() -> None:
            steps, call = calls.popleft()
            outputs.append(call())
            if progress:
                progress(int(prompts_T[steps].sum()), int(packed.lengths_T[steps].sum()))

        for start in range(0, packed.num_steps, programs.STEPS_PER_CALL * data):
            steps = slice(start, start + programs.STEPS_PER_CALL * data)
            batch = [self._put(programs.deal(array[steps], data), None, parallel.DATA) for array in arrays]
            active_T = np.arange(programs.STEPS_PER_CALL) * data < packed.num_steps - start
            calls.append((steps, self._enqueue(name, function, prefix, self._put(active_T), *batch)))
            if len(calls) > ahead:
                finish()
        while calls:
            finish()
        self.statistics.prompts += len(packed.slot_N)
        self.statistics.suffix_tokens += packed.num_tokens
        self.statistics.slots += packed.tokens_TBS.size
        return outputs

    def _prefix(self, packed: packing.PackedPrompts, keep: bool) -> attention.Prefix:
        key = (packed.prefix_length, packed.prefix_P.tobytes())
        if self._kept_prefix and self._kept_prefix[0] == key:
            return self._kept_prefix[1]
        arrays = self._put(packed.prefix_P), self._put(np.int32(packed.prefix_length))
        prefix = self._call("prefix", programs.read_prefix, *arrays)
        if keep and packed.prefix_length:
            self._kept_prefix = (key, prefix)
        self.statistics.prefix_tokens += packed.prefix_length
        return prefix

    def _put(self, array: np.ndarray | np.int32, *axes: str | None) -> Array:
        """The array on the mesh, split over these axes of it."""
        return parallel.put(np.asarray(array), self.mesh, P(*axes))

    def _enqueue(self, name: str, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        """Hands the devices a call; what comes back waits for its output, which is finite.

        The quick softmax in attention comes first; where it overflows, the stable one instead (see `models.attention`). What an
        earlier call needed does not matter, so that interrupted work ends as uninterrupted does. Another prompt's overflow does, so
        that a deterministic model takes the stable one at once, as all do where a kernel makes softmax stable.
        """
        is_stable = self._deterministic or attention.is_in_kernel(packing.ROW_WIDTH, self.platform)

        def start(stable_softmax: bool) -> tuple[Any, Array]:
            output = self._call(name, programs.each_step, *arguments, function=function, stable_softmax=stable_softmax)
            return output, programs.all_finite(output)

        enqueued = start(is_stable)

        def finish() -> Any:
            output, is_finite = enqueued
            if not is_finite and not is_stable:
                output, is_finite = start(True)
            if not is_finite:
                raise errors.UserError(
                    f"{self._name}: some next-token distributions are not finite: the weights are damaged, or overflow in "
                    f"{self.decoder.head.rows_VE.dtype}"
                )
            return output

        return finish

    def _call(self, name: str, program: jax.stages.Wrapped, *arguments: Any, **static: Any) -> Any:
        """Calls a jitted program, compiled ahead once per shape so that compile time is counted apart."""
        key = (name, *static.values(), *(jnp.shape(leaf) for leaf in jax.tree.leaves(arguments)))
        if key not in self._compiled:
            started = time.monotonic()
            # Full float32 products: accelerators otherwise round the reference mode's operands to fewer bits.
            with jax.default_matmul_precision("highest"):
                lowered = program.lower(self._graph, self.mesh, self._params, *arguments, **static)
                self._compiled[key] = lowered.compile()
            self.statistics.compile_seconds += time.monotonic() - started
            self.statistics.compilations += 1
        return self._compiled[key](self._params, *arguments)
