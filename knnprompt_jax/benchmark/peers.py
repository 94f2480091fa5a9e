"""Other ways to the same distributions, to be timed beside ours.

- jax_one: the published procedure with our model: one full prompt at a time, logits of all its tokens.
- jax_batched: full prompts in batches, no shared prefix, the head at each prompt's last token.
- torch_one: the published procedure with `transformers`, as the released code has it.
- torch_cached: `transformers` with a cached prefix (read before the clock starts; ours reads its prefix in every turn), and
  suffixes sorted by length into padded batches.

Ours pads prompts to a multiple of 64 tokens, since each length is a compilation of its own; PyTorch's are not padded.
"""

import contextlib
import dataclasses
import functools
import json
import math
import pathlib
import tempfile
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax import lm
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.benchmark import timing, torch_process, workloads
from knnprompt_jax.datastore import representations
from knnprompt_jax.models import checkpoints, decoder
from knnprompt_jax.prompts import layout

Array = jax.Array
TITLES = {
    "jax_one": "JAX, one full prompt at a time",
    "jax_batched": "JAX, full prompts in batches",
    "torch_one": "transformers, one full prompt at a time (released code)",
    "torch_cached": "transformers, cached prefix, sorted padded batches",
}
_PAD_TO = 64
_CONFIG_NAMES = {
    "gpt2": {
        "n_embd": "width",
        "n_layer": "num_layers",
        "n_head": "num_heads",
        "n_inner": "mlp_width",
        "n_positions": "num_positions",
        "vocab_size": "vocab_size",
    },
    "opt": {
        "hidden_size": "width",
        "word_embed_proj_dim": "embed_width",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "ffn_dim": "mlp_width",
        "max_position_embeddings": "num_positions",
        "vocab_size": "vocab_size",
        "do_layer_norm_before": "norm_first",
    },
}


@dataclasses.dataclass(frozen=True)
class Peer:
    """A contender: a turn reads `prompts` prompts, a sample of the workload's that has its mix of lengths."""

    prompts: int
    turn: timing.Turn


@dataclasses.dataclass(frozen=True)
class Sample:
    """What the peers read: whole prompts, and batches of suffixes out of all batches of the sorted workload."""

    prompts: list[np.ndarray]
    prefix_P: np.ndarray
    batches: list[list[np.ndarray]]

    @property
    def num_suffixes(self) -> int:
        return sum(map(len, self.batches))


def sample(workload: workloads.Workload, settings: settings_lib.BenchmarkSettings) -> Sample:
    """Evenly spaced by length."""
    group = workload.largest
    by_length = sorted(group.suffixes, key=len)
    whole = [np.concatenate([group.prefix_P, suffix]) for suffix in _spaced(by_length, settings.peer_prompts)]
    size = settings.peer_batch
    batches = [by_length[start : start + size] for start in range(0, len(by_length), size)]
    return Sample(whole, group.prefix_P, _spaced(batches, max(1, settings.peer_suffixes // size)))


def _spaced(items: Sequence, count: int) -> list:
    count = min(count, len(items))
    return [items[int((i + 0.5) * len(items) / count)] for i in range(count)]


def one_at_a_time(model: decoder.Decoder, prompts: Sequence[np.ndarray]) -> list[Array]:
    """The log-probabilities [V] after each prompt, by logits of all its tokens, one after the other as published."""
    graph, params = nnx.split(model)
    done = []
    for tokens in prompts:
        logits_TV = _all_logits(graph, params, _padded([tokens]))[0]
        done.append(jax.block_until_ready(jax.nn.log_softmax(logits_TV[len(tokens) - 1])))
    return done


def in_batches(model: decoder.Decoder, prompts: Sequence[np.ndarray], size: int) -> list[Array]:
    """The log-probabilities [size, V] after each batch's prompts, by the head at their last tokens."""
    graph, params = nnx.split(model)
    batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
    return [
        _last_log_probabilities(graph, params, _padded(batch), np.array([len(tokens) - 1 for tokens in batch]))
        for batch in batches
    ]


def in_jax(model: decoder.Decoder, sampled: Sample, settings: settings_lib.BenchmarkSettings) -> dict[str, Peer]:
    """The peers that run in this process."""
    works = {
        "jax_one": lambda: one_at_a_time(model, sampled.prompts),
        "jax_batched": lambda: in_batches(model, sampled.prompts, settings.peer_batch),
    }
    return {name: Peer(len(sampled.prompts), timing.stopwatch(works[name])) for name in works if name in settings.peers}


@contextlib.contextmanager
def in_torch(
    model: decoder.Decoder, sampled: Sample, settings: settings_lib.BenchmarkSettings
) -> Iterator[tuple[dict[str, Peer], torch_process.TorchProcess | None]]:
    """The peers that run in a process of PyTorch, and that process; none where torch is absent or no such peer is asked for."""
    names = [name for name in settings_lib.TORCH_PEERS if name in settings.peers]
    if not names or not torch_process.installed():
        yield {}, None
        return
    counts = {"torch_one": len(sampled.prompts), "torch_cached": sampled.num_suffixes}
    with tempfile.TemporaryDirectory() as folder, torch_process.start() as process:
        export(pathlib.Path(folder), model, weights=settings.agreement > 0)
        process.ask(
            "load",
            folder=folder,
            dtype=settings.dtype,
            weights=settings.agreement > 0,
            prompts=[tokens.tolist() for tokens in sampled.prompts],
            prefix=sampled.prefix_P.tolist(),
            batches=[[suffix.tolist() for suffix in batch] for batch in sampled.batches],
        )
        yield {name: Peer(counts[name], process.turn(name)) for name in names}, process


def export(folder: pathlib.Path, model: decoder.Decoder, weights: bool) -> None:
    """Writes what `transformers` needs to have the same model: config.json and, if asked for, the weights."""
    config = model.config
    hf = {theirs: getattr(config, ours) for theirs, ours in _CONFIG_NAMES[config.family].items()}
    if weights:
        checkpoints.save(folder, model, hf, jnp.float32)
    else:
        (folder / "config.json").write_text(json.dumps(hf | {"model_type": config.family}), encoding="utf-8")


def agreement(
    model: lm.LanguageModel,
    sampled: Sample,
    settings: settings_lib.BenchmarkSettings,
    process: torch_process.TorchProcess,
) -> dict[str, dict[str, float]]:
    """How far our log-probabilities are from each PyTorch peer's with the same weights: on some whole prompts, and on a batch."""
    length, count = len(sampled.prefix_P), settings.agreement
    suffixes = {
        "torch_one": ([tokens[length:] for tokens in sampled.prompts[:count]], count),
        "torch_cached": (sampled.batches[0], 1),
    }
    found = {}
    for name in (name for name in suffixes if name in settings.peers):
        own, limit = suffixes[name]
        group = layout.PromptGroup(sampled.prefix_P, tuple(own), np.arange(len(own)))
        states = model.states(layout.Prompts((group,), num_prompts=len(own)))
        ours_NV = np.asarray(representations.log_probabilities(model.head_VE, states))
        with tempfile.NamedTemporaryFile() as file:
            process.ask("save", of=name, limit=limit, path=file.name)
            theirs_NV = np.fromfile(file.name, np.float32).reshape(ours_NV.shape)
        found[name] = {"prompts": len(own), "max_abs_difference": float(np.abs(ours_NV - theirs_NV).max())}
    return found


def _padded(prompts: Sequence[np.ndarray]) -> np.ndarray:
    width = math.ceil(max(map(len, prompts)) / _PAD_TO) * _PAD_TO
    return np.stack([np.pad(tokens, (0, width - len(tokens))) for tokens in prompts])


@functools.partial(jax.jit, static_argnums=0)
def _all_logits(graph: nnx.GraphDef, params: nnx.State, tokens_BT: Array) -> Array:
    with jax.default_matmul_precision("highest"):
        model = nnx.merge(graph, params)
        return model.logits(model(tokens_BT))


@functools.partial(jax.jit, static_argnums=0)
def _last_log_probabilities(graph: nnx.GraphDef, params: nnx.State, tokens_BT: Array, last_B: Array) -> Array:
    with jax.default_matmul_precision("highest"):
        model = nnx.merge(graph, params)
        hidden_BE = jnp.take_along_axis(model(tokens_BT), last_B[:, None, None], 1)[:, 0]
        return jax.nn.log_softmax(model.logits(hidden_BE))
