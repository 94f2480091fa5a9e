"""The model and prompts of a job, without weights. `plan` and `benchmark` share them."""

import dataclasses
import math
import pathlib
from typing import Any, NoReturn

from jax.sharding import Mesh

from knnprompt_jax import errors, lm
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, hub, registry, tokenizers
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.runs import inputs
from knnprompt_jax.settings import shared
from knnprompt_jax.settings.planning import WorkloadOptions
from knnprompt_jax.tasks import splits

STAND_IN = "smollm2"  # Its tokenizer counts tokens if the model's own is not available.


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model without weights and tokenizer: its config.json, the decoder that it describes, and its folder or .gguf file.

    `path` is None for a published shape, of which only the shape is known.
    """

    name: str
    hf: hf_config.Json
    config: config_lib.DecoderConfig
    path: pathlib.Path | None


@dataclasses.dataclass(frozen=True)
class Workload:
    """The anchors' prompts, and the tokenizer that made their tokens."""

    prompts: layout.Prompts
    tokenizer: Any
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
    published = {alias: hf for whole, hf in registry.PUBLISHED.items() for alias in (whole, whole.rsplit("/", 1)[-1])}
    if name in published:
        return Subject(name, published[name], registry.config_from_hf(published[name]), None)
    path = hub.resolve(name, config_only=True)
    hf = registry.read_config(path)
    return Subject(name, hf, registry.config_from_hf(hf), path)


def make(settings: WorkloadOptions, subject: Subject, most: int = 0) -> Workload:
    """Lay out the anchors' prompts of the settings' task, the first `most` of them if that is not 0.

    Raises:
        UserError: rows that cannot be read or drawn, or a tokenizer with more tokens than the model.
    """
    tokenizer, source = _load_tokenizer(settings.tokenizer, subject)
    if len(tokenizer) > subject.config.vocab_size:
        raise errors.UserError(
            f"tokenizer {source}: it has {len(tokenizer)} tokens and {subject.name} has {subject.config.vocab_size}: "
            "choose another --tokenizer"
        )
    task, train = inputs.load_train(settings, settings.task, settings.train_file)
    model = lm.LanguageModel(subject.config, tokenizer, _load_nothing, name=subject.name)
    shots = shared.SHOTS if settings.shots is None else settings.shots or None
    demo_shots = inputs.demo_shots(settings.demo_shots, shots, inputs.Rows(task, train, ()), model)
    split = splits.draw(train, task, shots=shots, demo_shots=demo_shots, seed=settings.seed)
    anchors = split.anchors[: most or None]
    prompts = layout.build_prompts(task, split.demonstrations, anchors, model.tokenize, subject.config.num_positions)
    return Workload(prompts, tokenizer, source)


def pack(work: Workload, anchors: int, step_tokens: int, data: int) -> tuple[packing.PackShape, int]:
    """Return the shape of a step and each shard's number of steps, for `anchors` prompts with the workload's lengths.

    More anchors than prompts are assumed to fill rows as the prompts do. In truth their suffixes share more tokens.
    """
    group = work.largest
    shape = packing.choose_shape([group], step_tokens)
    rows = packing.pack(group, shape).num_steps * shape.rows
    rows_per_shard = math.ceil(rows * anchors / len(group.suffixes) / data)
    steps = math.ceil(rows_per_shard / max(1, step_tokens // shape.width))
    per_step = math.ceil(rows_per_shard / steps)
    reads = packing.round_up(math.ceil(shape.reads / shape.rows * per_step), 8)
    return dataclasses.replace(shape, rows=per_step, reads=reads), steps


def _load_nothing(mesh: Mesh) -> NoReturn:
    raise AssertionError("a plan loads no weights")


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
