"""The model and the prompts of a measurement or an estimate."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from knnprompt_jax.cli.command_settings import BenchmarkSettings
from knnprompt_jax.common import errors
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import layout, word_tokenizer
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import decoder, hub, registry, sharding, tokenizers
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.tasks import splits

STAND_IN = "smollm2"  # Its tokenizer counts tokens if the model's own is not available.
# The tokens of TREC's demonstrations, 8 per class, and the mean and standard deviation of those of its suffixes.
_PREFIX = 928
_MEAN = 14.5
_DEVIATION = 4.5


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """A model without weights and tokenizer: config.json, the decoder that it describes, and the folder.

    `path` is None for a published shape, which has no weights.
    """

    name: str
    hf: config_lib.Json
    config: config_lib.DecoderConfig
    path: pathlib.Path | None


@dataclasses.dataclass(frozen=True)
class Workload:
    """The prompts of anchors, and the model without its weights.

    Attributes:
        subject: the model's description.
        model: the model.
        tokenizer_name: the name of the tokenizer that makes the tokens.
        build: builds the prompts of the first anchors, of all if the number is 0; a call knows no words of another.
        num_anchors: the number of anchors to read; 0: all.
    """

    subject: ModelShape
    model: lm.LanguageModel
    tokenizer_name: str
    build: Callable[[int], layout.Prompts]
    num_anchors: int

    @functools.cached_property
    def prompts(self) -> layout.Prompts:
        """The prompts of the anchors to read."""
        return self.build(self.num_anchors)

    @property
    def largest(self) -> layout.PromptGroup:
        """The group with the most prompts."""
        return max(self.prompts.groups, key=lambda group: len(group.suffixes))


def describe(name: str) -> ModelShape:
    """Describe a model: a published shape (with or without its owner) needs no network, others need their config.json.

    Raises:
        UserError: an unknown or unsupported model.
    """
    for published, hf in registry.PUBLISHED.items():
        if name in (published, published.rpartition("/")[2]):
            return ModelShape(name, hf, registry.config_from_hf(hf), None)
    folder = hub.resolve(name, config_only=True)
    path = folder / "config.json"
    hf = config_lib.read(path)
    return ModelShape(name, hf, registry.config_from_hf(hf, path=str(path)), folder)


def build(settings: BenchmarkSettings, subject: ModelShape, num_anchors: int = 0) -> Workload:
    """Build the anchors' prompts of the task, the first `num_anchors` of them if that is not 0.

    Raises:
        UserError: rows that cannot be read or drawn.
    """
    tokenizer, source = _load_tokenizer(settings.tokenizer, subject)
    model = _make_model(settings, subject, tokenizer)
    task, train = inputs.load_train(settings, settings.task, settings.train_file)
    rows = inputs.Rows(task, train, (), inputs.are_published(settings.task, settings.train_file))
    demo_shots = inputs.demo_shots(settings.demo_shots, settings.shots, rows, model)
    split = splits.draw(train, task, shots=settings.shots, demo_shots=demo_shots, seed=settings.seed)

    def build_prompts(count: int) -> layout.Prompts:
        anchors = split.anchors[: count or None]
        tokenize = word_tokenizer.WordTokenizer(tokenizer)
        return layout.build_prompts(task, split.demonstrations, anchors, tokenize, model.context)

    work = Workload(subject, model, source, build_prompts, num_anchors)
    layout.warn_truncated(work.prompts.num_truncated, work.prompts.num_prompts, model.context)
    return work


def build_random(settings: BenchmarkSettings, subject: ModelShape, num_anchors: int) -> Workload:
    """Build prompts of random tokens, which need no tokenizer."""
    model = _make_model(settings, subject, tokenizer=None)
    build_prompts = functools.partial(random_prompts, subject.config)
    return Workload(subject, model, "none: random tokens", build_prompts, num_anchors)


def random_prompts(config: config_lib.DecoderConfig, num_anchors: int) -> layout.Prompts:
    """Return prompts of random tokens as long as TREC's; the prefix fills at most half the context."""
    rng = np.random.default_rng(0)
    prefix = min(_PREFIX, config.num_positions // 2)
    sizes = rng.normal(_MEAN, _DEVIATION, num_anchors).round().astype(int).clip(2, config.num_positions - prefix)
    prefix_P, *suffixes = (rng.integers(0, config.vocab_size, size).astype(np.int32) for size in (prefix, *sizes))
    group = layout.PromptGroup(prefix_P, layout.TokenRows.of(suffixes), np.arange(num_anchors))
    return layout.Prompts.from_groups([group], num_anchors, prefix_P.tolist())


def _make_model(settings: BenchmarkSettings, subject: ModelShape, tokenizer: Any) -> lm.LanguageModel:
    """Return the model, whose weights are not loaded yet."""
    return lm.LanguageModel(
        subject.config,
        tokenizer,
        functools.partial(_load_weights, subject, settings.dtype),
        name=subject.name,
        dtype=settings.dtype,
        step_tokens=settings.batch,
        mesh=functools.partial(inputs.make_mesh, settings.mesh, settings.dtype, settings.batch),
    )


def _load_weights(subject: ModelShape, dtype: str, mesh: Mesh) -> decoder.Decoder:
    """Load the weights onto the mesh, or draw random ones for a published shape."""
    config = subject.config
    if subject.path:
        return registry.load(subject.path, config, jnp.dtype(dtype), sharding.placement(config, mesh))
    graph, abstract = abstract_weights(config, dtype, mesh)
    formats = jax.tree.map(lambda leaf: leaf.format, abstract)
    draw = jax.jit(lambda: nnx.state(decoder.Decoder(config, nnx.Rngs(0), jnp.dtype(dtype))), out_shardings=formats)
    return nnx.merge(graph, draw())


def abstract_weights(config: config_lib.DecoderConfig, dtype: str, mesh: Mesh) -> tuple[Any, nnx.State]:
    """Return the graph of a decoder, and the shapes, dtypes and shardings of its weights."""
    graph, params = nnx.split(registry.abstract(config, jnp.dtype(dtype)))
    placement = sharding.placement(config, mesh)

    def place(path: tuple[Any, ...], leaf: Any) -> Any:
        format = placement(".".join(map(str, path)))
        return leaf.replace(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=format))

    return graph, nnx.map_state(place, params)


def _load_tokenizer(name: str, subject: ModelShape) -> tuple[Any, str]:
    """Return the named tokenizer, the model's own, or the stand-in, and its name."""
    if name:
        return tokenizers.load(pathlib.Path(name)), name
    try:
        return tokenizers.load(hub.resolve(subject.name, weights=False)), subject.name
    except errors.UserError:
        return tokenizers.load(hub.resolve(STAND_IN)), STAND_IN
