"""A frozen language model: a decoder, its tokenizer and its passes over prompts."""

import dataclasses
import functools
import multiprocessing
import numbers
import os
import pathlib
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax.common import errors, parallel
from knnprompt_jax.common import progress as progress_lib
from knnprompt_jax.inference.lm import execution as execution_lib
from knnprompt_jax.inference.prompts import continuations as continuations_lib
from knnprompt_jax.inference.prompts import layout, packing, word_tokenizer
from knnprompt_jax.models import DTYPES, hub, registry, sharding, tokenizers
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import decoder as decoder_lib
from knnprompt_jax.models import head as head_lib

Array = jax.Array
MeshChoice = jax.sharding.Mesh | Callable[[config_lib.DecoderConfig], jax.sharding.Mesh] | None
_LIVE: "weakref.WeakSet[LanguageModel]" = weakref.WeakSet()


@dataclasses.dataclass(frozen=True)
class Identity:
    """The values of a language model that its states depend on, and its name (`states.chunks` keys states)."""

    name: str
    fingerprint: str
    dtype: str
    deterministic: bool
    context: int

    @property
    def content(self) -> tuple[str, str, bool, int]:
        """The values without the name: the files of a model may move."""
        return self.fingerprint, self.dtype, self.deterministic, self.context

    def load(self, **options: Any) -> "LanguageModel":
        """Return the model of this name, as by `LanguageModel.from_pretrained`."""
        options |= {"deterministic": self.deterministic, "context": self.context}
        return LanguageModel.from_pretrained(self.name, self.dtype, **options)


class LanguageModel:
    """A frozen decoder with its tokenizer. The weights load at the first pass, or at the first use of `head`.

    Attributes:
        config: the shape of the decoder.
        tokenizer: the model's tokenizer; `tokenize` maps texts to token ids.
        name: the name, folder or file that the model was requested by.
        path: the folder or GGUF file of the model; None if it has no files.
        mesh: the devices.
        dtype: the dtype of weights and activations, one of `models.DTYPES`.
        deterministic: whether each state is bitwise identical, regardless of the other prompts of its pass.
        step_tokens: packed tokens per step in each data shard.
        context: the maximum number of tokens of a prompt.
        needs_weights: False for a dry run, for which the configuration and the tokenizer suffice.
        statistics: the cost of all passes so far.
    """

    def __init__(
        self,
        config: config_lib.DecoderConfig,
        tokenizer: Any,
        load: Callable[[jax.sharding.Mesh], decoder_lib.Decoder],
        *,
        name: str = "",
        path: pathlib.Path | None = None,
        fingerprint: str | None = None,
        dtype: str = "float32",
        step_tokens: int | None = None,
        mesh: MeshChoice = None,
        deterministic: bool = False,
        context: int = 0,
        needs_weights: bool = True,
    ):
        """Describe a model without loading its weights.

        Args:
            load: returns the decoder with its weights on a mesh.
            fingerprint: SHA-256 of the files of weights, configuration and tokenizer; None: computed at its first use,
                and "" if the model has no files.
            step_tokens: None or 0: the device's default.
            mesh: the devices, or a function that chooses them for the configuration at their first use; None: one.
            deterministic: docs/reliability.md has the cost. `step_tokens` has no effect on a deterministic model.
            context: 0: the model's limit.

        Raises:
            UserError: the model reads fewer than `context` tokens, or the mesh cannot split it.
        """
        self.config = config
        self.tokenizer = tokenizer
        self.tokenize = word_tokenizer.WordTokenizer(tokenizer)
        self.name = name
        self.path = path
        self.dtype = dtype
        self.deterministic = deterministic
        self.context = _checked_context(context, name, config)
        self.statistics = execution_lib.PassStatistics()
        self.needs_weights = needs_weights
        self._load = load
        self._execution: execution_lib.Execution | None = None
        self._mesh = mesh
        self._step_tokens = step_tokens
        self._fingerprint = fingerprint
        self._num_tokens: dict[str, int] = {}
        if isinstance(mesh, jax.sharding.Mesh):
            sharding.check(config, mesh)
        _LIVE.add(self)

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | os.PathLike[str], dtype: str = "float32", *, needs_weights: bool = True, **options: Any
    ) -> "LanguageModel":
        """Return a decoder of any family of `registry.LANGUAGE_MODELS`.

        The configuration and the tokenizer are read at once. Each process reads only the slices of its own
        devices of safetensors and Flax files; a GGUF file is converted whole.

        Args:
            name_or_path: "smollm2", "tiny", a Hugging Face folder, a GGUF file, or a Hub name: "owner/name",
                "owner/name:file.gguf" or "owner/name@revision".
            dtype: float32 (the reference) or bfloat16 (for accelerators).
            needs_weights: False reads only config.json and the tokenizer.
            options: `step_tokens`, `mesh`, `deterministic` and `context`, as in the constructor.

        Raises:
            UserError: an unknown dtype or model, an unsupported architecture, a model that reads fewer than `context`
                tokens or that the mesh cannot split. The first pass raises it on damaged or mismatched weight files.
        """
        if dtype not in DTYPES:
            raise errors.UserError(f"dtype={dtype!r}: choose from {', '.join(DTYPES)}")
        config, path = registry.describe(str(name_or_path), weights=needs_weights)

        def load(mesh: jax.sharding.Mesh) -> decoder_lib.Decoder:
            return registry.load(path, config, jnp.dtype(dtype), sharding.placement(config, mesh))

        return cls(
            config,
            tokenizers.load(path, vocab_size=config.vocab_size),
            load,
            name=str(name_or_path),
            path=path,
            dtype=dtype,
            needs_weights=needs_weights,
            **options,
        )

    @classmethod
    def from_decoder(cls, model: decoder_lib.Decoder, tokenizer: Any, **options: Any) -> "LanguageModel":
        """Return the model of a decoder in memory; `options` are those of the constructor."""
        return cls(model.config, tokenizer, lambda mesh: model, dtype=model.dtype, **options)

    def __deepcopy__(self, memo: Any) -> "LanguageModel":
        return self  # Copies of a classifier share their model.

    def __reduce__(self) -> Any:
        """Pickle the name of the model without its weights."""
        if not self.fingerprint:
            message = "cannot pickle this model: only models loaded by from_pretrained have a name to load them by"
            raise errors.UserError(message)
        return load_reference, (self.identity, self.step_tokens)

    def __repr__(self) -> str:
        mesh = " × ".join(f"{size} {axis}" for axis, size in self.mesh.shape.items())
        parameters = registry.num_parameters(self.config)
        return (
            f"LanguageModel({self.name!r}: {self.config.family}, {parameters:,} parameters, {self.dtype}, mesh {mesh})"
        )

    @property
    def short_name(self) -> str:
        """The name without owner, folders and revision."""
        return hub.base_name(self.name)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the files of weights, configuration and tokenizer; "" if the model has no files."""
        if self._fingerprint is not None:
            return self._fingerprint
        path = self.path
        return _fingerprint(lambda: path, self.needs_weights) if path else ""

    @property
    def identity(self) -> Identity:
        """The values that the states of this model depend on, and its name."""
        return Identity(self.name, self.fingerprint, self.dtype, self.deterministic, self.context)

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh:
        if self._mesh is None:
            return parallel.make_mesh(1, 1)
        return self._mesh if isinstance(self._mesh, jax.sharding.Mesh) else self._mesh(self.config)

    @property
    def platform(self) -> str:
        """The platform of the devices: cpu, gpu or tpu."""
        return self.mesh.devices.flat[0].platform

    @property
    def step_tokens(self) -> int:
        return self._step_tokens or execution_lib.step_tokens(self.platform)

    @property
    def execution(self) -> execution_lib.Execution:
        """The decoder on the mesh with its compiled programs; the first use loads the weights."""
        if self._execution is None:
            self._execution = execution_lib.Execution(self._load(self.mesh), self.name, self.mesh, self.statistics)
        return self._execution

    @property
    def head(self) -> head_lib.Head:
        """The output head, which turns states into next-token logits."""
        return self.execution.head

    def free_prefix(self) -> None:
        """Free the keys and values of the prefix that was read last."""
        if self._execution is not None:
            self._execution.free_prefix()

    def free(self) -> None:
        """Free the weights and compiled programs; the next pass loads the weights again."""
        self._execution = None

    def count_tokens(self, texts: Sequence[str]) -> np.ndarray:
        """Return the number of tokens of each text [N], excluding special tokens. Each text is tokenized only once."""
        new = [text for text in dict.fromkeys(texts) if text not in self._num_tokens]
        counts = layout.count_tokens(self.tokenize, new).tolist()
        self._num_tokens.update(zip(new, counts, strict=True))
        return np.array([self._num_tokens[text] for text in texts], int)

    def score(
        self, continuations: continuations_lib.Continuations, progress: progress_lib.Progress | None = None
    ) -> continuations_lib.Scores:
        """Return the log-probability of every target token given all tokens before it.

        Texts with a shared prefix have one packed shape, and texts without a prefix another. Each shape compiles two
        programs: one reads the prefix, the other scores the texts. Later calls with the same shapes compile nothing.

        Raises:
            UserError: a log-probability is not finite, because weights are damaged or overflow.
        """
        shape_of = packing.choose_shapes(continuations.groups, self.step_tokens, self.mesh.shape[parallel.DATA])
        count = continuations.num_texts
        scores = continuations_lib.Scores([np.zeros(0, np.float32)] * count, [np.zeros(0, bool)] * count)
        for group, targets in zip(continuations.groups, continuations.targets, strict=True):
            packed = self.execution.pack(group, shape_of(group))
            tokens_TDJ = continuations_lib.target_tokens(targets, packed)
            outputs = []
            calls = self.execution.queue(packed, execution_lib.score_suffixes, tokens_TDJ)
            for call in parallel.delayed(calls, 0 if self.platform == "cpu" else 1):
                self.execution.wait(call)
                outputs.append(parallel.replicate(call.output))
                if progress:
                    progress(call.num_prompts, call.num_tokens)
            log_p = np.concatenate([np.ravel(call_log_p) for call_log_p, _ in outputs])
            is_greatest = np.concatenate([np.ravel(call_is_greatest) for _, call_is_greatest in outputs])
            for number, slots in zip(group.number_N, continuations_lib.slots(targets, packed), strict=True):
                scores.log_p[number] = log_p[slots]
                scores.is_greatest[number] = is_greatest[slots]
        self.free_prefix()
        return scores


class QueuedPass:
    """A pass over prompts whose calls are queued on the devices; on CPUs, its calls have run."""

    def __init__(
        self,
        model: LanguageModel,
        groups: Sequence[layout.PromptGroup],
        shape_of: packing.ShapeOf,
        activations: tuple[head_lib.Activation, ...] = (),
        progress: progress_lib.Progress = lambda prompts, tokens: None,
    ):
        """Pack and queue the prompts. `inference.states` makes these objects; everybody else calls `states.read`.

        Args:
            model: the model, whose weights load if they are not there yet.
            groups: the prompts.
            shape_of: the pack shape of each group.
            activations: the activations that are returned. Means require prefixes of only the demonstrations.
            progress: called with the numbers of prompts and tokens of each finished call.

        Raises:
            UserError: a prompt has a token outside the model's vocabulary.
        """
        self._execution = model.execution
        self._progress = progress
        self._waiting: list[execution_lib.Call] = []
        self._selected = []
        self._numbers = np.concatenate([group.number_N for group in groups])
        function = execution_lib.suffix_reader(model.deterministic, activations)
        local = parallel.local_data_shards(model.mesh)
        for group in groups:
            packed = self._execution.pack(group, shape_of(group), local)
            calls = []
            for call in self._execution.queue(packed, function):
                calls.append(call)
                self._waiting.append(call)
                if model.platform == "cpu":  # It would run two calls at once.
                    self.wait()
            selected = self._execution.select(calls, packed)
            self._selected.append((selected, packed.shard_N, packed.number_in_shard_N))

    def wait(self) -> None:
        """Wait for all calls; raise UserError if a distribution is not finite: weights are damaged or overflow."""
        while self._waiting:
            call = self._waiting.pop(0)
            self._execution.wait(call)
            self._progress(call.num_prompts, call.num_tokens)

    def rows(self) -> np.ndarray:
        """Return a row per prompt, in the order of their numbers: the state, log-partition and activations."""
        rows = []
        for (hidden_DnE, log_z_Dn, by_block), shard_N, number_in_shard_N in self._selected:
            parts = [hidden_DnE, log_z_Dn[..., None], *(by_block[output] for output in sorted(by_block))]
            rows.append(np.concatenate([np.asarray(part) for part in parts], -1)[shard_N, number_in_shard_N])
        return np.concatenate(rows)[np.argsort(self._numbers)]


def _checked_context(context: int, name: str, config: config_lib.DecoderConfig) -> int:
    """Return `context`, or the model's limit if it is 0; raise UserError unless the model reads as many tokens."""
    if isinstance(context, bool) or not isinstance(context, numbers.Integral):
        raise errors.UserError(f"context={context!r}: give a whole number of tokens")
    if not 0 <= context <= config.num_positions:
        raise errors.UserError(f"context={context}: {name} reads at most {config.num_positions} tokens")
    return context or config.num_positions


@functools.cache  # The Hub is asked once per process.
def find_fingerprint(name: str, needs_weights: bool) -> str:
    """Return the SHA-256 of the files of the model of this name; "" if they are missing and no weights are needed."""
    return _fingerprint(lambda: hub.resolve(name, weights=needs_weights), needs_weights)


def _fingerprint(find: Callable[[], pathlib.Path], needs_weights: bool) -> str:
    """Return the SHA-256 of the model files in the found folder; "" if files are missing and no weights are needed."""
    try:
        return registry.fingerprint(find())
    except errors.UserError:
        if needs_weights:
            raise
        return ""


def load_reference(identity: Identity, step_tokens: int) -> LanguageModel:
    """Return the model that a pickle names, on one device; it is loaded unless this process has it already.

    `LanguageModel.__reduce__` names it. It is a function, because cloudpickle, which Ray and Spark use, would copy the
    code of a method instead of naming it.

    Raises:
        UserError: it cannot be loaded, or its files have changed.
    """
    for model in list(_LIVE):
        if model.name != identity.name or model.mesh.size != 1:
            continue  # The identity of another model may need files that are gone.
        if (model.identity, model.step_tokens) == (identity, step_tokens):
            return model
    if multiprocessing.parent_process():
        message = f"this process loads its own copy of the model {identity.name}; set n_jobs=1 to share one"
        warnings.warn(message, stacklevel=2)
    model = identity.load(step_tokens=step_tokens)
    if model.fingerprint != identity.fingerprint:
        raise errors.UserError(
            f"{identity.name}: the files of this model have changed since it was pickled "
            f"(fingerprint {model.fingerprint[:8]}, was {identity.fingerprint[:8]})"
        )
    return model
