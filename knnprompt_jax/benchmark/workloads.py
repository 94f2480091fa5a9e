"""What is timed: a decoder with random weights or those of a file, on prompts of a task or of drawn lengths."""

import dataclasses
import pathlib
from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from knnprompt_jax import errors, lm, parallel
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.benchmark import subjects
from knnprompt_jax.lm import memory
from knnprompt_jax.models import checkpoints, conversion, decoder, registry, sharding, tokenizers
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.runs import material
from knnprompt_jax.tasks import splits

SPREAD = 0.02  # Standard deviation of random weights.
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


def language_model(
    settings: settings_lib.BenchmarkSettings, subject: subjects.Subject
) -> tuple[decoder.Decoder, lm.LanguageModel]:
    """The decoder, and the same as every method uses it; it has no tokenizer, since prompts are tokens already.

    Raises:
        UserError: a mesh that there are no devices for, or that the model cannot be split over; a file that cannot be read.
    """
    size = settings.mesh.model or memory.model_axis([subject.config], settings.dtype, settings.batch)
    mesh, dtype = parallel.make_mesh(settings.mesh.data, size), config_lib.DTYPES[settings.dtype]
    if subject.file:
        model = checkpoints.load(subject.file, subject.config, dtype, sharding.placement(subject.config, mesh))
    else:
        model = random_model(subject.config, dtype, mesh)
    return model, lm.LanguageModel(model, (), subject.name, step_tokens=settings.batch or None, mesh=mesh)


def random_model(config: config_lib.DecoderConfig, dtype: jnp.dtype, mesh: jax.sharding.Mesh) -> decoder.Decoder:
    """A decoder whose weights are drawn where they belong, in their own dtype; the same on any mesh."""
    place = sharding.placement(config, mesh)
    graph, state = nnx.split(registry.abstract(config, dtype))
    leaves = {".".join(map(str, path)): leaf for path, leaf in nnx.to_flat_state(state)}
    numbers, same = {path: number for number, path in enumerate(leaves)}, _same_tensor(config, leaves)
    for path, leaf in leaves.items():
        draw = jax.jit(_draw, static_argnames=("shape", "dtype", "is_stacked"), out_shardings=place(path))
        # Norms leave numbers about as they are.
        mean = float(path.endswith(".scale") and config.norm != "rms_plus_one")
        key, is_stacked = jax.random.key(numbers[same[path]]), path.startswith("blocks.")
        leaf.set_value(draw(key, mean, SPREAD, shape=leaf.shape, dtype=leaf.dtype, is_stacked=is_stacked))
    return nnx.merge(graph, state)


def _same_tensor(config: config_lib.DecoderConfig, leaves: Collection[str]) -> dict[str, str]:
    """From each weight to the first that is the same tensor of a published file (Phi's norm serves attention and MLP)."""
    first: dict[tuple[str, int], str] = {}
    pieces = conversion.expand(registry.FAMILIES[config.family].table, config, leaves)
    return {piece.ours: first.setdefault((piece.theirs, piece.segment.start), piece.ours) for piece in pieces}


def _draw(
    key: jax.Array, mean: float, spread: float, *, shape: tuple[int, ...], dtype: jnp.dtype, is_stacked: bool
) -> jax.Array:
    """Stacked weights are drawn layer by layer: more than one layer in float32 might not fit beside the result."""

    def draw(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return (mean + spread * jax.random.normal(key, shape)).astype(dtype)

    if not is_stacked:
        return draw(key, shape)
    return jax.lax.map(lambda key: draw(key, shape[1:]), jax.random.split(key, shape[0]))


def make(settings: settings_lib.BenchmarkSettings, subject: subjects.Subject) -> Workload:
    """The anchors' prompts that the settings describe; raises UserError on rows, a tokenizer or lengths that cannot work."""
    if settings.task:
        return _of_task(settings, subject)
    return synthetic(settings, subject, settings.anchors or 1024, settings.prefix_tokens)


def synthetic(
    settings: settings_lib.BenchmarkSettings, subject: subjects.Subject, anchors: int, prefix: int
) -> Workload:
    """Random tokens: one prefix, suffixes of gamma-distributed lengths (those beyond four times the mean are cut).

    Raises UserError where the prefix leaves no room in the context.
    """
    config, mean = subject.config, settings.suffix_tokens
    room = config.num_positions - prefix
    if room < mean:
        raise errors.UserError(
            f"{prefix} prefix tokens and {mean:g} of a suffix do not fit: "
            f"{subject.name} reads {config.num_positions} tokens"
        )
    rng = np.random.default_rng(settings.seed)
    drawn = 1 + rng.gamma(GAMMA_SHAPE, (mean - 1) / GAMMA_SHAPE, anchors)
    lengths = np.clip(np.round(drawn), 1, min(room, max(packing.ROW_WIDTH, 4 * mean))).astype(int)
    prefix_P, *suffixes = (rng.integers(0, config.vocab_size, n).astype(np.int32) for n in (prefix, *lengths))
    group = layout.PromptGroup(prefix_P, tuple(suffixes), np.arange(anchors))
    return Workload("synthetic lengths", layout.Prompts((group,), anchors))


def _of_task(settings: settings_lib.BenchmarkSettings, subject: subjects.Subject) -> Workload:
    task, train = material.load_train(settings, settings.task)
    split = splits.draw(train, task, shots=settings.shots, demo_shots=settings.demo_shots, seed=settings.seed)
    source = pathlib.Path(settings.tokenizer) if settings.tokenizer else subject.file
    assert source  # As the settings were checked.
    tokenizer, config = tokenizers.load(source), subject.config
    if len(tokenizer) > config.vocab_size:
        raise errors.UserError(f"{source}: {len(tokenizer)} tokens, but {subject.name} has {config.vocab_size}")
    anchors = split.anchors[: settings.anchors or None]
    prompts = layout.lay_out(task, split.demonstrations, anchors, layout.tokenize_with(tokenizer), config.num_positions)
    return Workload(f"task {task.name}", prompts)
