"""What a job reads, in tokens: its model's shape without weights, its prompts, and how they are packed for a mesh."""

import dataclasses
import functools
import math
import pathlib
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, hub, registry, tokenizers
from knnprompt_jax.models.gguf import config as gguf_config
from knnprompt_jax.planning import settings as settings_lib
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.runs import material
from knnprompt_jax.tasks import splits

STAND_IN = "gpt2"  # Whose tokens are counted where the model's own tokenizer cannot be had.


@dataclasses.dataclass(frozen=True)
class PlannedModel:
    """The model that is planned for: its config.json, what that means, and the tokenizer that counts its tokens."""

    name: str
    hf: hf_config.Json
    config: config_lib.DecoderConfig
    tokenizer: Any
    tokens_of: str


@dataclasses.dataclass(frozen=True)
class Packed:
    """The prompts as a mesh reads them: the shape of its steps, and how many steps each data shard takes."""

    shape: packing.PackShape
    steps: int


@dataclasses.dataclass(frozen=True)
class PlannedPrompts:
    """So many anchors, whose prompts are those of `prompts` or as many times more of the same lengths."""

    prompts: layout.Prompts
    anchors: int

    def packed(self, step_tokens: int, data: int) -> Packed:
        """For so many data shards.

        A larger number of anchors is taken to fill its rows as the drawn ones do; in truth its suffixes share more.
        """
        group = max(self.prompts.groups, key=lambda group: len(group.suffixes))
        rows, reads, shape = _rows(group, step_tokens)
        a_shard = math.ceil(rows * self.anchors / len(group.suffixes) / data)
        steps = math.ceil(a_shard / max(1, step_tokens // shape.width))
        per_step = math.ceil(a_shard / steps)
        most = packing.round_up(math.ceil(reads * per_step), 8)
        return Packed(dataclasses.replace(shape, rows=per_step, reads=most), steps)


def subject(settings: settings_lib.PlanSettings) -> PlannedModel:
    """The model of the settings: a published shape without asking anybody, otherwise by its config.json.

    Raises:
        UserError: no such model, one that is not supported, or no tokenizer to count with.
    """
    name = settings.model
    if name in registry.PUBLISHED:
        hf, folder = registry.PUBLISHED[name], None
    else:
        folder = hub.resolve(name, settings.revision or None, config_only=True)
        hf = gguf_config.config_json(folder) if folder.suffix == ".gguf" else hf_config.read(folder)
    config = registry.config_from_hf(hf)
    return PlannedModel(name, hf, config, *_tokenizer(settings, name, folder))


def make(settings: settings_lib.PlanSettings, subject: PlannedModel) -> PlannedPrompts:
    """The anchors' prompts; raises UserError on rows that cannot be read or drawn."""
    task, train = material.load_train(settings, settings.task, settings.train_file)
    model = material.Model(subject.name, pathlib.Path(), subject.config, subject.tokenizer)
    shown = material.demo_shots(settings, material.Rows(task, train, ()), model)
    split = splits.draw(train, task, shots=settings.shots, demo_shots=shown, seed=settings.seed)
    prompts = layout.lay_out(task, split.demonstrations, split.anchors, model.tokenize, subject.config.num_positions)
    return PlannedPrompts(prompts, settings.anchors or prompts.num_prompts)


@functools.cache
def _load(name: str, revision: str) -> Any:
    return tokenizers.load(hub.resolve(name, revision or None, weights=False))


def _tokenizer(settings: settings_lib.PlanSettings, name: str, folder: pathlib.Path | None) -> tuple[Any, str]:
    """A tokenizer, and whose it is."""
    if settings.tokenizer:
        return tokenizers.load(pathlib.Path(settings.tokenizer)), settings.tokenizer
    if folder and (folder.suffix == ".gguf" or any(folder.glob("tokenizer*"))):
        return tokenizers.load(folder), name
    for candidate, revision in ((name, settings.revision), (STAND_IN, "")):
        try:
            return _load(candidate, revision), candidate
        except errors.UserError:
            continue
    raise errors.UserError(
        f"neither the tokenizer of {name} nor that of {STAND_IN} can be had from the Hub or its cache: "
        "name a folder with one, tokenizer=…"
    )


def _rows(group: layout.PromptGroup, step_tokens: int) -> tuple[int, float, packing.PackShape]:
    """Packed rows of all prompts of a group, tokens read per row in the step that has most, and the shape of a row."""
    shape = packing.choose_shape([group], step_tokens)
    steps = packing.pack(group, shape).num_steps
    return steps * shape.rows, shape.reads / shape.rows, shape
