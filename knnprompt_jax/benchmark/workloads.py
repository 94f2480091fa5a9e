"""What is timed: decoders of published shapes with random weights, prompts of a task or of drawn lengths."""

import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax import errors, lm, parallel
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import decoder, registry
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.tasks import catalogue, sources, splits

GAMMA_SHAPE = 2.5  # Spread of drawn suffix lengths: like that of the tasks' texts.


@dataclasses.dataclass(frozen=True)
class Workload:
    """The prompts of a set of anchors."""

    name: str
    prompts: layout.Prompts

    @property
    def num_suffix_tokens(self) -> int:
        return sum(len(suffix) for group in self.prompts.groups for suffix in group.suffixes)

    @property
    def largest(self) -> layout.PromptGroup:
        """The group with most prompts."""
        return max(self.prompts.groups, key=lambda group: len(group.suffixes))


def model_config(settings: settings_lib.BenchmarkSettings) -> config_lib.DecoderConfig:
    """The published shape, with the sizes that the settings replace; the MLP is four times as wide as the blocks then.

    Raises:
        UserError: no such shape, or heads that do not divide the width.
    """
    short = {name.rsplit("/", 1)[-1]: config for name, config in registry.PUBLISHED.items()}
    config = short.get(settings.model_shape) or registry.published(settings.model_shape)
    own: dict[str, Any] = {
        "num_layers": settings.layers,
        "num_heads": settings.heads,
        "vocab_size": settings.vocab_size,
    }
    own |= {"width": settings.width, "embed_width": settings.width, "mlp_width": 4 * settings.width}
    config = dataclasses.replace(config, **{name: value for name, value in own.items() if value})
    if config.width % config.num_heads:
        raise errors.UserError(f"heads={config.num_heads} does not divide the width {config.width}")
    return config


def language_model(
    settings: settings_lib.BenchmarkSettings, config: config_lib.DecoderConfig
) -> tuple[decoder.Decoder, lm.LanguageModel]:
    """A decoder with random weights, and the same as every method uses it; it has no tokenizer, since prompts are tokens already.

    Raises:
        UserError: a mesh that there are no devices for, or that the model cannot be split over.
    """
    mesh = parallel.make_mesh(settings.mesh_data, settings.mesh_model)
    model = random_model(config, lm.DTYPES[settings.dtype], mesh)
    return model, lm.LanguageModel(model, (), settings.model_shape, step_tokens=settings.batch or None, mesh=mesh)


def random_model(config: config_lib.DecoderConfig, dtype: jnp.dtype, mesh: jax.sharding.Mesh) -> decoder.Decoder:
    """A decoder whose weights are drawn where they belong, in their own dtype; the same on any mesh."""
    place = parallel.placement(config, mesh)
    graph, state = nnx.split(nnx.eval_shape(lambda: decoder.Decoder(config, nnx.Rngs(0), dtype)))
    for number, (path, leaf) in enumerate(nnx.to_flat_state(state)):
        draw = jax.jit(
            _draw, static_argnames=("shape", "dtype", "stacked"), out_shardings=place(".".join(map(str, path)))
        )
        mean, stacked = float(path[-1] == "scale"), path[0] == "blocks"
        leaf.set_value(draw(jax.random.key(number), mean, shape=leaf.shape, dtype=leaf.dtype, stacked=stacked))
    return nnx.merge(graph, state)


def _draw(key: jax.Array, mean: float, *, shape: tuple[int, ...], dtype: jnp.dtype, stacked: bool) -> jax.Array:
    """Stacked weights are drawn layer by layer: more than one layer in float32 might not fit beside the result."""

    def draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return (mean + 0.02 * jax.random.normal(key, shape)).astype(dtype)

    if not stacked:
        return draw(key, shape)
    return jax.lax.map(lambda key: draw(key, shape[1:]), jax.random.split(key, shape[0]))


def make(settings: settings_lib.BenchmarkSettings, config: config_lib.DecoderConfig) -> Workload:
    """The anchors' prompts that the settings describe.

    Raises:
        UserError: rows, tokenizer or lengths that cannot work.
    """
    if settings.task:
        return _of_task(settings, config)
    return synthetic(settings, config, settings.anchors or 1024, settings.prefix_tokens)


def synthetic(
    settings: settings_lib.BenchmarkSettings, config: config_lib.DecoderConfig, anchors: int, prefix: int
) -> Workload:
    """Random tokens: one prefix, suffixes of gamma-distributed lengths (those beyond four times the mean are cut).

    Raises:
        UserError: a prefix that leaves no room in the context.
    """
    mean = settings.suffix_tokens
    room = config.num_positions - prefix
    if room < mean:
        raise errors.UserError(
            f"{prefix} prefix tokens and {mean:g} of a suffix do not fit: "
            f"{settings.model_shape} reads {config.num_positions} tokens"
        )
    rng = np.random.default_rng(settings.seed)
    drawn = 1 + rng.gamma(GAMMA_SHAPE, (mean - 1) / GAMMA_SHAPE, anchors)
    lengths = np.clip(np.round(drawn), 1, min(room, max(packing.ROW_WIDTH, 4 * mean))).astype(int)
    prefix_P, *suffixes = (rng.integers(0, config.vocab_size, n).astype(np.int32) for n in (prefix, *lengths))
    group = layout.PromptGroup(prefix_P, tuple(suffixes), np.arange(anchors))
    return Workload("synthetic lengths", layout.Prompts((group,), anchors))


def _of_task(settings: settings_lib.BenchmarkSettings, config: config_lib.DecoderConfig) -> Workload:
    task = catalogue.get(settings.task)
    train = sources.load_rows(
        task, "train", data_dir=settings.data_dir or None, restore_dropped=settings.restore_dropped
    )
    split = splits.draw(train, task, shots=settings.shots, demo_shots=settings.demo_shots, seed=settings.seed)
    tokenizer = lm.load_tokenizer(pathlib.Path(settings.tokenizer))
    if len(tokenizer) > config.vocab_size:
        raise errors.UserError(
            f"{settings.tokenizer}: {len(tokenizer)} tokens, but {settings.model_shape} has {config.vocab_size}"
        )
    anchors = split.anchors[: settings.anchors or None]
    prompts = layout.lay_out(task, split.demonstrations, anchors, layout.tokenize_with(tokenizer), config.num_positions)
    return Workload(f"task {task.name}", prompts)
