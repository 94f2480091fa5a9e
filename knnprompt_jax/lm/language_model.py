"""The language-model pass: prompts → states, the statistics from which every next-token distribution follows."""

import collections
import dataclasses
import functools
import os
import pathlib
import time
import weakref
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
from knnprompt_jax.lm import states as states_lib
from knnprompt_jax.models import attention, checkpoints, decoder, registry, sharding, tokenizers
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.prompts import alone, layout, packing
from knnprompt_jax.prompts import continuations as continuations_lib

Array = jax.Array
_LIVE: "weakref.WeakSet[LanguageModel]" = weakref.WeakSet()


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


class LanguageModel:
    """A frozen decoder with its tokenizer."""

    def __init__(
        self,
        model: decoder.Decoder,
        tokenizer: Any,
        name: str = "",
        fingerprint: str = "",
        step_tokens: int | None = None,
        mesh: jax.sharding.Mesh | None = None,
        deterministic: bool = False,
    ):
        """`step_tokens` is how many packed tokens go through the model at a time in each data shard; the default suits the device.

        Without a mesh the model runs on one device. If `deterministic`, the state of a prompt is the same to the bit whatever is read
        beside it, and `step_tokens` do not count (docs/reliability.md has the cost).
        """
        if len(tokenizer) > model.config.vocab_size:
            raise errors.UserError(
                f"{name}: the tokenizer has {len(tokenizer)} tokens, the model {model.config.vocab_size}: they do not belong together"
            )
        self.config, self.tokenizer, self.name, self.fingerprint = model.config, tokenizer, name, fingerprint
        self.tokenize = layout.tokenize_with(tokenizer)
        self.statistics, self.deterministic = PassStatistics(), deterministic
        self.mesh = parallel.make_mesh(1, 1) if mesh is None else mesh
        self.step_tokens = step_tokens or programs.step_tokens(self._platform)
        self._dtype = model.dtype
        self._graph, params = nnx.split(model)
        self._params = sharding.place(params, model.config, self.mesh)
        _LIVE.add(self)
        self._compiled: dict[Any, Any] = {}
        self._kept_prefix: tuple[Any, attention.Prefix] | None = None

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        dtype: str = "float32",
        revision: str | None = None,
        step_tokens: int | None = None,
        mesh: jax.sharding.Mesh | None = None,
        deterministic: bool = False,
    ) -> "LanguageModel":
        """Loads a decoder of any family of `registry.LANGUAGE_MODELS`, in float32 (the reference), bfloat16 (for accelerators) or int8
        (kernels in 8 bits, the rest in bfloat16).

        The name is "smollm2" or "tiny", a Hugging Face folder, a GGUF file, a Hub name, or a Hub name with a file: "owner/name:file.gguf".
        Each process reads only the slices of its devices of the mesh.

        Raises:
            UserError: unknown dtype, no such model, unsupported architecture, a model that the mesh cannot split, damaged or
                mismatched weight files.
        """
        config_lib.dtype_of(dtype)
        config, path = registry.describe(str(name_or_path), revision)
        fingerprint, tokenizer = checkpoints.fingerprint(path, config), tokenizers.load(path)
        name = str(name_or_path)
        return cls.from_files(path, config, tokenizer, name, fingerprint, dtype, step_tokens, mesh, deterministic)

    @classmethod
    def from_files(
        cls,
        path: pathlib.Path,
        config: config_lib.DecoderConfig,
        tokenizer: Any,
        name: str,
        fingerprint: str,
        dtype: str = "float32",
        step_tokens: int | None = None,
        mesh: jax.sharding.Mesh | None = None,
        deterministic: bool = False,
    ) -> "LanguageModel":
        """As `from_pretrained`, where all but the weights is read already."""
        jax_dtype, mesh = config_lib.dtype_of(dtype), parallel.make_mesh(1, 1) if mesh is None else mesh
        model = checkpoints.load(path, config, jax_dtype, sharding.placement(config, mesh))
        return cls(model, tokenizer, name, fingerprint, step_tokens, mesh, deterministic)

    @classmethod
    def by_reference(
        cls, name: str, fingerprint: str, dtype: str, step_tokens: int, deterministic: bool
    ) -> "LanguageModel":
        """The model of that name with these weights: on one device of this process, where it is loaded unless it is there already.

        Raises:
            UserError: it cannot be loaded, or has other weights now.
        """
        asked = (name, fingerprint, dtype, step_tokens, deterministic)
        for model in list(_LIVE):
            if model.mesh.size == 1 and model._reference == asked:
                return model
        model = cls.from_pretrained(name, dtype, step_tokens=step_tokens, deterministic=deterministic)
        if model.fingerprint != fingerprint:
            raise errors.UserError(
                f"{name}: its weights are others (fingerprint {model.fingerprint[:8]}) than those of the model that was "
                f"pickled ({fingerprint[:8]})"
            )
        return model

    def __reduce__(self) -> Any:
        """A pickle names the model, and holds no weights."""
        if not self.fingerprint:
            raise errors.UserError(
                "a model that was not loaded by from_pretrained cannot be pickled: nothing names its weights"
            )
        return type(self).by_reference, self._reference

    @property
    def _reference(self) -> tuple[str, str, str, int, bool]:
        """What a pickle names it by."""
        return self.name, self.fingerprint, self.dtype, self.step_tokens, self.deterministic

    def __repr__(self) -> str:
        mesh = " × ".join(f"{size} {axis}" for axis, size in self.mesh.shape.items())
        parameters = registry.num_parameters(self.config)
        return (
            f"LanguageModel({self.name!r}: {self.config.family}, {parameters:,} parameters, {self.dtype}, mesh {mesh})"
        )

    @property
    def context(self) -> int:
        """Tokens the model can read."""
        return self.config.num_positions

    @property
    def _platform(self) -> str:
        return self.mesh.devices.flat[0].platform

    @property
    def identity(self) -> tuple[str, str, Any, str, bool]:
        """Name, fingerprint, tokenizer, dtype and whether it is deterministic: what states depend on beside their prompts."""
        return self.name, self.fingerprint, self.tokenizer, self.dtype, self.deterministic

    @property
    def dtype(self) -> str:
        """Of weights and activations, by its name in `config.DTYPES`."""
        return self._dtype

    @functools.cached_property
    def head(self) -> head_lib.Head:
        """What makes next-token logits of hidden states."""
        return nnx.merge(self._graph, self._params).head

    def states(
        self,
        prompts: layout.Prompts,
        shape: Callable[[layout.PromptGroup], packing.PackShape] | None = None,
        progress: progress_lib.Progress | None = None,
        keep_prefix: bool = False,
    ) -> states_lib.States:
        """The states of all prompts, in the order asked for, their rows split over every device (where their number divides).

        `shape` gives the packing of a group; by default the group's, which costs one compilation per call of `states`. A deterministic
        model packs every prompt alone instead.
        With `keep_prefix` the prefix stays in the devices' memory, and the next call with the same prefix does not read it again.

        Raises:
            UserError: distributions that are not finite, because weights are damaged or overflow.
        """
        if not keep_prefix:
            self._kept_prefix = None
        shape = shape or (lambda group: packing.choose_shape([group], self.step_tokens, self.mesh.shape[parallel.DATA]))
        function = programs.read_suffixes
        if self.deterministic:
            prompts, shape, function = alone.arrange(prompts), self._shape_alone, programs.read_suffixes_alone
        outputs: list[tuple[Array, Array]] = []
        slots, indices = [], []
        started = time.monotonic()
        for group in prompts.groups:
            packed = self._pack(group, shape(group))
            slots.append(packed.slot_N + sum(log_z_TJ.size for _, log_z_TJ in outputs))
            indices.append(group.index)
            outputs += self._read(packed, progress, "suffixes", function, keep_prefix=keep_prefix)
        if not outputs:
            return states_lib.States(jnp.zeros((0, self.config.state_width)), jnp.zeros(0), self.deterministic)
        slot_N = np.concatenate(slots)[np.argsort(np.concatenate(indices))]
        hidden_NE, log_z_N = jax.block_until_ready(
            programs.select(outputs, slot_N, parallel.by_rows(self.mesh, len(slot_N)))
        )
        self.statistics.seconds += time.monotonic() - started
        return states_lib.States(hidden_NE, log_z_N, deterministic=self.deterministic)

    def score(
        self, continuations: continuations_lib.Continuations, progress: progress_lib.Progress | None = None
    ) -> continuations_lib.Scores:
        """How likely every target token of each text is, predicted from all tokens before it. Sums and means are the caller's.

        Costs four compilations at most: texts with a shared prefix and without, the prefix's and theirs.

        Raises:
            UserError: as `states`.
        """
        shapes = packing.choose_shapes(continuations.groups, self.step_tokens, self.mesh.shape[parallel.DATA])
        scores = continuations_lib.Scores.empty(continuations.num_texts)
        started = time.monotonic()
        for group, targets in zip(continuations.groups, continuations.targets, strict=True):
            packed = self._pack(group, shapes[bool(len(group.prefix_P))])
            tokens_TJ = continuations_lib.place(targets, packed)
            calls = parallel.replicate(self._read(packed, progress, "score", programs.score_suffixes, tokens_TJ))
            log_p, is_greatest = (
                np.concatenate([np.asarray(part).ravel() for part in parts]) for parts in zip(*calls, strict=True)
            )
            for index, slots in zip(group.index, continuations_lib.slots(targets, packed), strict=True):
                scores.log_p[index], scores.is_greatest[index] = log_p[slots], is_greatest[slots]
        self.statistics.seconds += time.monotonic() - started
        return scores

    def _shape_alone(self, group: layout.PromptGroup) -> packing.PackShape:
        """Steps of half the tokens, so that a few texts do not cost as much as many."""
        return alone.shape(group, programs.step_tokens(self._platform) // 2)

    def _pack(self, group: layout.PromptGroup, shape: packing.PackShape) -> packing.PackedPrompts:
        """Step t belongs to the data shard t modulo their number; a process fills in the steps of its shards."""
        data, local = self.mesh.shape[parallel.DATA], parallel.local_data_shards(self.mesh)
        return packing.pack(group, shape, lambda step: step % data in local)

    def _read(
        self,
        packed: packing.PackedPrompts,
        progress: progress_lib.Progress | None,
        name: str,
        function: Callable[..., Any],
        *extra_TJ: np.ndarray,
        keep_prefix: bool = False,
    ) -> list[Any]:
        """What a function of `programs` makes of all packed steps, call by call, each in the order [T, J]."""
        prefix = self._prefix(packed, keep_prefix)
        prompts_T = np.bincount(packed.slot_N // packed.shape.reads, minlength=packed.num_steps)
        data = self.mesh.shape[parallel.DATA]
        arrays = (packed.tokens_TBS, packed.stops_TBS, packed.positions_TBS, packed.read_positions_TJ, *extra_TJ)
        ahead, outputs = programs.calls_ahead(self._platform), []
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
        is_stable = self.deterministic or attention.is_in_kernel(packing.ROW_WIDTH, self._platform)

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
                    f"{self.name}: some next-token distributions are not finite: the weights are damaged, or overflow in "
                    f"{self.head.rows_VE.dtype}"
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
