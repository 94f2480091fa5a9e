"""The model and the prompts of a benchmark."""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from knnprompt_jax import errors, lm, parallel
from knnprompt_jax.lm import memory
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import decoder, hf_config, hub, registry, sharding, tokenizers
from knnprompt_jax.models.weights import checkpoints
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings.benchmark import BenchmarkSettings
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.tasks import splits

STAND_IN = "smollm2"  # Its tokenizer counts tokens if the model's own is not available.


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """A model without weights and tokenizer: config.json, the decoder that it describes, and folder or .gguf file.

    `path` is None for a published shape, which has no weights.
    """

    name: str
    hf: hf_config.Json
    config: config_lib.DecoderConfig
    path: pathlib.Path | None


@dataclasses.dataclass(frozen=True)
class Workload:
    """The anchors' prompts, the model without its weights, and the name of the tokenizer that made their tokens."""

    prompts: layout.Prompts
    model: lm.LanguageModel
    tokenizer_name: str

    @property
    def largest(self) -> layout.PromptGroup:
        """The group with the most prompts."""
        return max(self.prompts.groups, key=lambda group: len(group.suffixes))


def describe(name: str) -> ModelShape:
    """Describe a model: a published shape (with or without its owner) needs no network, others need their config.json.

    Raises:
        UserError: an unknown or unsupported model.
    """
    shapes = published()
    if name in shapes:
        return ModelShape(name, shapes[name], registry.config_from_hf(shapes[name]), None)
    path = hub.resolve(name, config_only=True)
    hf = registry.read_config(path)
    return ModelShape(name, hf, registry.config_from_hf(hf), path)


def published() -> dict[str, hf_config.Json]:
    """Return the config.json of each published shape, under its name with and without the owner."""
    return registry.PUBLISHED | {whole.rsplit("/", 1)[-1]: hf for whole, hf in registry.PUBLISHED.items()}


def build(settings: BenchmarkSettings, subject: ModelShape, num_anchors: int = 0) -> Workload:
    """Build the anchors' prompts of the task, the first `num_anchors` of them if that is not 0.

    Raises:
        UserError: rows that cannot be read or drawn, or a tokenizer with more tokens than the model.
    """
    tokenizer, source = _load_tokenizer(settings.tokenizer, subject)
    if len(tokenizer) > subject.config.vocab_size:
        raise errors.UserError(
            f"tokenizer {source}: it has {len(tokenizer)} tokens and {subject.name} has {subject.config.vocab_size}: "
            "choose another --tokenizer"
        )
    model = _make_model(settings, subject, tokenizer)
    task, train = inputs.load_train(settings, settings.task, settings.train_file)
    demo_shots = inputs.demo_shots(settings.demo_shots, settings.shots, inputs.Rows(task, train, ()), model)
    split = splits.draw(train, task, shots=settings.shots, demo_shots=demo_shots, seed=settings.seed)
    anchors = split.anchors[: num_anchors or None]
    prompts = layout.build_prompts(task, split.demonstrations, anchors, model.tokenize, model.context)
    layout.warn_truncated(prompts.num_truncated, prompts.num_prompts, model.context)
    return Workload(prompts, model, source)


@dataclasses.dataclass(frozen=True)
class Lengths:
    """The tokens of a task's demonstrations, and the mean and standard deviation of those of its suffixes."""

    prefix: int
    mean: float
    deviation: float


# With 8 demonstrations per class, in GPT-2's tokens.
LENGTHS = {"trec": Lengths(928, 14.5, 4.5), "mr": Lengths(614, 29.3, 12.0)}


def build_random(settings: BenchmarkSettings, subject: ModelShape, lengths: str, num_anchors: int) -> Workload:
    """Return a workload of random tokens with the lengths of a task, a key of `LENGTHS`; it needs no tokenizer."""
    model = _make_model(settings, subject, tokenizer=None)
    return Workload(random_prompts(subject.config, lengths, num_anchors), model, "none: random tokens")


def random_prompts(config: config_lib.DecoderConfig, lengths: str, num_anchors: int) -> layout.Prompts:
    """Return prompts of random tokens; the prefix is shortened to half the context if that is smaller."""
    found = LENGTHS[lengths]
    rng = np.random.default_rng(0)
    prefix = min(found.prefix, config.num_positions // 2)
    sizes = rng.normal(found.mean, found.deviation, num_anchors).round().astype(int).clip(2, 4 * int(found.mean))
    sizes = sizes.clip(max=config.num_positions - prefix)
    prefix_P, *suffixes = (rng.integers(0, config.vocab_size, size).astype(np.int32) for size in (prefix, *sizes))
    group = layout.PromptGroup(prefix_P, tuple(suffixes), np.arange(num_anchors))
    return layout.Prompts((group,), num_anchors, demonstration_tokens=tuple(prefix_P.tolist()))


def _make_model(settings: BenchmarkSettings, subject: ModelShape, tokenizer: Any) -> lm.LanguageModel:
    """Return the model, whose weights are not loaded yet."""
    return lm.LanguageModel(
        subject.config,
        tokenizer,
        functools.partial(_load_weights, subject, settings.dtype),
        name=subject.name,
        dtype=settings.dtype,
        step_tokens=settings.batch,
        mesh=functools.partial(make_mesh, settings),
    )


def make_mesh(settings: BenchmarkSettings, config: config_lib.DecoderConfig) -> Mesh:
    """Return the mesh of the settings; raise UserError if it has no devices."""
    size = settings.mesh.model or memory.model_axis(config, settings.dtype, settings.batch)
    return parallel.make_mesh(settings.mesh.data, size)


def _load_weights(subject: ModelShape, dtype: str, mesh: Mesh) -> decoder.Decoder:
    """Load the weights onto the mesh, or draw random ones for a published shape."""
    config = subject.config
    if subject.path:
        return checkpoints.load(subject.path, config, jnp.dtype(dtype), sharding.placement(config, mesh))
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
    if subject.path and (subject.path.suffix == ".gguf" or any(subject.path.glob("tokenizer*"))):
        return tokenizers.load(subject.path), subject.name
    try:
        return tokenizers.load(hub.resolve(subject.name, weights=False)), subject.name
    except errors.UserError:
        return tokenizers.load(hub.resolve(STAND_IN)), STAND_IN
