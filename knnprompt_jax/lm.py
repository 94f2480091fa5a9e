"""The language-model pass: prompts → states, the statistics from which every next-token distribution follows."""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx, struct

from knnprompt_jax import errors
from knnprompt_jax.models import attention, checkpoints, decoder, registry
from knnprompt_jax.prompts import layout, packing

Array = jax.Array
DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
STEPS_PER_CALL = 4
# Called after each call into the device with the prompts and suffix tokens done since the last; see `progress.py`.
Progress = Callable[[int, int], None]


@struct.dataclass
class States:
    """One row a prompt: the head's input `hidden_NE` and the log-partition `log_z_N` in nats, both float32.

    log p(v) = w_v · h − log Z, with w_v the rows of the head.
    """

    hidden_NE: Array
    log_z_N: Array

    def __len__(self) -> int:
        return len(self.log_z_N)

    def __getitem__(self, rows: Any) -> "States":
        return jax.tree.map(lambda array: array[rows], self)


def concatenate(parts: Sequence[States]) -> States:
    """States of several sets of prompts, one after the other."""
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *parts)


@dataclasses.dataclass
class PassStatistics:
    """What the passes of a model cost so far: prompts, tokens (prefixes, suffixes, packed slots), seconds, compilations."""

    prompts: int = 0
    prefix_tokens: int = 0
    suffix_tokens: int = 0
    slots: int = 0
    seconds: float = 0.0
    compile_seconds: float = 0.0
    compilations: int = 0

    @property
    def fill(self) -> float:
        return self.suffix_tokens / max(1, self.slots)

    @property
    def prompts_per_second(self) -> float:
        return self.prompts / max(1e-9, self.seconds)


class LanguageModel:
    """A frozen decoder with its tokenizer."""

    def __init__(
        self,
        model: decoder.Decoder,
        tokenizer: Any,
        name: str = "",
        fingerprint: str = "",
        step_tokens: int | None = None,
    ):
        """`step_tokens` is how many packed tokens go through the model at a time; the default suits the device."""
        if len(tokenizer) > model.config.vocab_size:
            raise errors.UserError(
                f"{name}: the tokenizer has {len(tokenizer)} tokens, the model {model.config.vocab_size}: they do not belong together"
            )
        self.config, self.tokenizer, self.name, self.fingerprint = model.config, tokenizer, name, fingerprint
        self.tokenize = layout.tokenize_with(tokenizer)
        self.statistics = PassStatistics()
        self.step_tokens = step_tokens or (1024 if jax.default_backend() == "cpu" else 16384)
        self._graph, self._params = nnx.split(model)
        self._compiled: dict[Any, Any] = {}

    @classmethod
    def from_pretrained(
        cls, name_or_folder: str, dtype: str = "float32", revision: str | None = None, step_tokens: int | None = None
    ) -> "LanguageModel":
        """Loads a GPT-2 or OPT from a Hub name or a Hugging Face folder, in float32 (the reference) or bfloat16 (for accelerators).

        Raises:
            UserError: unknown dtype, no such model, unsupported architecture, damaged or mismatched weight files.
        """
        if dtype not in DTYPES:
            raise errors.UserError(f"dtype={dtype!r}: choose from {', '.join(DTYPES)}")
        config, folder = registry.describe(name_or_folder, revision)
        model = checkpoints.load(folder, config, DTYPES[dtype])
        return cls(model, load_tokenizer(folder), name_or_folder, checkpoints.fingerprint(folder, config), step_tokens)

    @property
    def context(self) -> int:
        """Tokens the model can read."""
        return self.config.num_positions

    @property
    def head_VE(self) -> Array:
        """The head: row v gives token v's logit as an inner product with a hidden state."""
        return self._params["tokens" if self.config.tied_head else "head"][...]

    def states(
        self,
        prompts: layout.Prompts,
        shape: Callable[[layout.PromptGroup], packing.PackShape] | None = None,
        progress: Progress | None = None,
    ) -> States:
        """The states of all prompts, in the order asked for, on the device.

        `shape` gives the packing of a group; by default the group's own, which costs one compilation a call of `states`.
        """
        shape = shape or (lambda group: packing.choose_shape([group], self.step_tokens))
        parts, indices = [], []
        for group in prompts.groups:
            parts.append(self._group_states(packing.pack(group, shape(group)), progress))
            indices.append(group.index)
        if not parts:
            return States(jnp.zeros((0, self.config.embed_width)), jnp.zeros(0))
        return concatenate(parts)[np.argsort(np.concatenate(indices))]

    def _group_states(self, packed: packing.PackedPrompts, progress: Progress | None) -> States:
        started = time.monotonic()
        prefix = self._call("prefix", _read_prefix, packed.prefix_P, np.int32(packed.prefix_length))
        prompts_T = np.bincount(packed.slot_N // packed.shape.ends, minlength=packed.num_steps)
        tokens_T = np.count_nonzero(packed.segments_TBS, axis=(1, 2))
        outputs: list[States] = []
        for start in range(0, packed.num_steps, STEPS_PER_CALL):
            steps = slice(start, start + STEPS_PER_CALL)
            batch = [
                _pad_steps(array[steps])
                for array in (packed.tokens_TBS, packed.segments_TBS, packed.positions_TBS, packed.ends_TJ)
            ]
            active_T = np.arange(STEPS_PER_CALL) < packed.num_steps - start
            outputs.append(self._call("suffixes", _read_suffixes, prefix, active_T, *batch))
            if progress:
                outputs[-1].log_z_N.block_until_ready()
                progress(int(prompts_T[steps].sum()), int(tokens_T[steps].sum()))
        states = jax.block_until_ready(concatenate(outputs)[packed.slot_N])
        self._account(packed, time.monotonic() - started)
        return states

    def _call(self, name: str, function: Callable, *arguments: Any) -> Any:
        """Calls a jitted function, compiled ahead once a shape so that compile time is counted apart."""
        key = (name, *(jnp.shape(leaf) for leaf in jax.tree.leaves(arguments)))
        if key not in self._compiled:
            started = time.monotonic()
            # Full float32 products: accelerators otherwise round the reference mode's operands to fewer bits.
            with jax.default_matmul_precision("highest"):
                self._compiled[key] = function.lower(self._graph, self._params, *arguments).compile()
            self.statistics.compile_seconds += time.monotonic() - started
            self.statistics.compilations += 1
        return self._compiled[key](self._params, *arguments)

    def _account(self, packed: packing.PackedPrompts, seconds: float) -> None:
        self.statistics.prompts += len(packed.slot_N)
        self.statistics.prefix_tokens += packed.prefix_length
        self.statistics.suffix_tokens += packed.num_tokens
        self.statistics.slots += packed.tokens_TBS.size
        self.statistics.seconds += seconds


def load_tokenizer(folder: pathlib.Path) -> Any:
    """The tokenizer of a Hugging Face folder, which runs no code of the folder's."""
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise errors.UserError(
            f"{folder}: no usable tokenizer (tokenizer.json, or vocab.json and merges.txt): {reason}"
        ) from error


@functools.partial(jax.jit, static_argnums=0)
def _read_prefix(graph: nnx.GraphDef, params: nnx.State, tokens_P: Array, length: Array) -> attention.Prefix:
    with jax.named_scope("prefix"):
        return nnx.merge(graph, params).read_prefix(tokens_P, length)


@functools.partial(jax.jit, static_argnums=0)
def _read_suffixes(
    graph: nnx.GraphDef,
    params: nnx.State,
    prefix: attention.Prefix,
    active_T: Array,
    tokens_TBS: Array,
    segments_TBS: Array,
    positions_TBS: Array,
    ends_TJ: Array,
) -> States:
    """States of the T · J suffix ends, steps one after the other; steps that are not active cost nothing."""
    model = nnx.merge(graph, params)

    def run(step: tuple[Array, ...]) -> States:
        with jax.named_scope("suffixes"):
            hidden_JE = model.read_suffixes(*step, prefix)
        with jax.named_scope("log_partition"):
            return States(hidden_JE, jax.nn.logsumexp(model.logits(hidden_JE), -1))

    def body(_: None, step_and_active: tuple[tuple[Array, ...], Array]) -> tuple[None, States]:
        step, active = step_and_active
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(run, step))
        return None, jax.lax.cond(active, run, lambda _: empty, step)

    _, states = jax.lax.scan(body, None, ((tokens_TBS, segments_TBS, positions_TBS, ends_TJ), active_T))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), states)


def _pad_steps(array_T: np.ndarray) -> np.ndarray:
    return np.pad(array_T, [(0, STEPS_PER_CALL - len(array_T))] + [(0, 0)] * (array_T.ndim - 1))
