"""The model and the prompts of a benchmark."""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from knnprompt_jax import errors, lm, parallel
from knnprompt_jax.lm import memory
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import decoder, hf_config, hub, registry, sharding, tokenizers
from knnprompt_jax.models.weights import checkpoints
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import inputs
from knnprompt_jax.settings.benchmark import BenchmarkSettings
from knnprompt_jax.tasks import splits

STAND_IN = "smollm2"  # Its tokenizer counts tokens if the model's own is not available.


@dataclasses.dataclass(frozen=True)
class Subject:
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


def describe(name: str) -> Subject:
    """Describe a model: a published shape (with or without its owner) needs no network, others need their config.json.

    Raises:
        UserError: an unknown or unsupported model.
    """
    published = dict(registry.PUBLISHED)
    published |= {whole.rsplit("/", 1)[-1]: hf for whole, hf in registry.PUBLISHED.items()}
    if name in published:
        return Subject(name, published[name], registry.config_from_hf(published[name]), None)
    path = hub.resolve(name, config_only=True)
    hf = registry.read_config(path)
    return Subject(name, hf, registry.config_from_hf(hf), path)


def build(settings: BenchmarkSettings, subject: Subject, num_anchors: int = 0) -> Workload:
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
    model = lm.LanguageModel(
        subject.config,
        tokenizer,
        functools.partial(_load_weights, subject, settings.dtype),
        name=subject.name,
        dtype=settings.dtype,
        step_tokens=settings.batch,
        mesh=functools.partial(_make_mesh, settings),
    )
    task, train = inputs.load_train(settings, settings.task, settings.train_file)
    shots = settings.shots or None
    demo_shots = inputs.demo_shots(settings.demo_shots, shots, inputs.Rows(task, train, ()), model)
    split = splits.draw(train, task, shots=shots, demo_shots=demo_shots, seed=settings.seed)
    anchors = split.anchors[: num_anchors or None]
    prompts = layout.build_prompts(task, split.demonstrations, anchors, model.tokenize, model.context)
    return Workload(prompts, model, source)


def _make_mesh(settings: BenchmarkSettings, config: config_lib.DecoderConfig) -> Mesh:
    """Return the mesh of the settings; raise UserError if it has no devices."""
    size = settings.mesh.model or memory.model_axis(config, settings.dtype, settings.batch)
    return parallel.make_mesh(settings.mesh.data, size)


def _load_weights(subject: Subject, dtype: str, mesh: Mesh) -> decoder.Decoder:
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
    flat = {}
    for path, leaf in nnx.to_flat_state(params):
        format = placement(".".join(map(str, path)))
        flat[path] = leaf.replace(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=format))
    return graph, nnx.from_flat_state(flat)


def _load_tokenizer(name: str, subject: Subject) -> tuple[Any, str]:
    """Return the named tokenizer, the model's own, or the stand-in, and its name."""
    if name:
        return tokenizers.load(pathlib.Path(name)), name
    if subject.path and (subject.path.suffix == ".gguf" or any(subject.path.glob("tokenizer*"))):
        return tokenizers.load(subject.path), subject.name
    try:
        return tokenizers.load(hub.resolve(subject.name, weights=False)), subject.name
    except errors.UserError:
        return tokenizers.load(hub.resolve(STAND_IN)), STAND_IN
