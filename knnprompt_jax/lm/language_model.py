"""The language-model pass: prompts → states, the statistics from which every next-token distribution follows."""

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

from knnprompt_jax import errors, parallel
from knnprompt_jax import progress as progress_lib
from knnprompt_jax.lm import execution, programs
from knnprompt_jax.lm import states as states_lib
from knnprompt_jax.models import checkpoints, decoder, identity, registry, sharding, tokenizers
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.prompts import alone, layout, packing
from knnprompt_jax.prompts import continuations as continuations_lib

Array = jax.Array
_LIVE: "weakref.WeakSet[LanguageModel]" = weakref.WeakSet()


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
        self.mesh, self.deterministic = parallel.make_mesh(1, 1) if mesh is None else mesh, deterministic
        self.execution = execution.Execution(model, name, self.mesh, deterministic)
        self.step_tokens = step_tokens or programs.step_tokens(self.execution.platform)
        self._dtype = model.dtype
        _LIVE.add(self)

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
        tokenizer, fingerprint = tokenizers.load(path, vocab_size=config.vocab_size), identity.fingerprint(path)
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
    def statistics(self) -> execution.PassStatistics:
        """What all passes so far have cost."""
        return self.execution.statistics

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
        return self.execution.decoder.head

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
            self.execution.forget_prefix()
        shape = shape or (lambda group: packing.choose_shape([group], self.step_tokens, self.mesh.shape[parallel.DATA]))
        function = programs.read_suffixes
        if self.deterministic:
            prompts, shape, function = alone.arrange(prompts), self._shape_alone, programs.read_suffixes_alone
        outputs: list[tuple[Array, Array]] = []
        slots, indices = [], []
        started = time.monotonic()
        for group in prompts.groups:
            packed = self.execution.pack(group, shape(group))
            slots.append(packed.slot_N + sum(log_z_TJ.size for _, log_z_TJ in outputs))
            indices.append(group.index)
            outputs += self.execution.read(packed, progress, "suffixes", function, keep_prefix=keep_prefix)
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
            packed = self.execution.pack(group, shapes[bool(len(group.prefix_P))])
            tokens_TJ = continuations_lib.place(targets, packed)
            calls = parallel.replicate(
                self.execution.read(packed, progress, "score", programs.score_suffixes, tokens_TJ)
            )
            log_p, is_greatest = (
                np.concatenate([np.asarray(part).ravel() for part in parts]) for parts in zip(*calls, strict=True)
            )
            for index, slots in zip(group.index, continuations_lib.slots(targets, packed), strict=True):
                scores.log_p[index], scores.is_greatest[index] = log_p[slots], is_greatest[slots]
        self.statistics.seconds += time.monotonic() - started
        return scores

    def _shape_alone(self, group: layout.PromptGroup) -> packing.PackShape:
        """Steps of half the tokens, so that a few texts do not cost as much as many."""
        return alone.shape(group, programs.step_tokens(self.execution.platform) // 2)
