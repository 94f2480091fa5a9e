"""Which model is timed: a published shape, or one with other sizes, with random weights; or a GGUF file with its own."""

import collections
import dataclasses
import pathlib
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hf_config, registry
from knnprompt_jax.models.gguf import config as gguf_config
from knnprompt_jax.models.gguf import header as gguf_header

# Under which keys a config.json has the sizes that settings replace.
_KEYS = {
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "head_size": "head_dim",
    "vocab_size": "vocab_size",
}
_OTHER_KEYS = {"gpt2": {"width": "n_embd", "layers": "n_layer", "heads": "n_head"}}
_MLP_KEYS = ("intermediate_size", "ffn_dim")  # GPT-2's shapes have none: its MLPs are four times as wide as its blocks.
_UNQUANTISED = ("F64", "F32", "F16", "BF16")


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model's name, its config.json and what that means; its GGUF file and how the matrices are stored there, if it has one."""

    name: str
    hf: hf_config.Json
    config: config_lib.DecoderConfig
    file: pathlib.Path | None = None
    stored: tuple[str, ...] = ()

    @property
    def is_quantised(self) -> bool:
        return any(kind not in _UNQUANTISED for kind in self.stored)


def choose(settings: settings_lib.BenchmarkSettings) -> Subject:
    """The model that the settings name; raises UserError on a shape or file that there is not, and on sizes that make no model."""
    if settings.gguf:
        return _of_file(settings.gguf)
    hf = _resized(settings)
    try:
        config = registry.config_from_hf(hf)
    except errors.UserError as error:
        raise errors.UserError(f"{settings.model_shape} with the sizes given: {error}") from None
    return Subject(settings.model_shape, hf, config)


def _of_file(name: str) -> Subject:
    config, file = registry.describe(name)
    if file.suffix != ".gguf":
        raise errors.UserError(f"gguf={name!r}: {file} is no GGUF file")
    matrices = [entry for entry in gguf_header.read(file).tensors.values() if len(entry.shape) > 1]
    kinds = collections.Counter(entry.type.name for entry in matrices)
    short = pathlib.Path(name).name
    return Subject(short, gguf_config.config_json(file), config, file, tuple(kind for kind, _ in kinds.most_common()))


def _resized(settings: settings_lib.BenchmarkSettings) -> hf_config.Json:
    """The published config.json with the sizes that the settings replace.

    MLPs keep their width per width of the blocks, and keys and values their number of query heads each.
    """
    published = _published(settings.model_shape)
    keys = _KEYS | _OTHER_KEYS.get(published["model_type"], {})
    replaced: dict[str, Any] = {keys[name]: size for name in keys if (size := getattr(settings, name))}
    hf = {**published, **replaced}
    width, heads = hf[keys["width"]], hf[keys["heads"]]
    if settings.width:
        replaced |= {key: round(width * hf[key] / published[keys["width"]]) for key in _MLP_KEYS if key in hf}
        replaced |= {key: width for key in ("word_embed_proj_dim",) if key in hf}
    if "head_dim" not in hf and width % heads:
        raise errors.UserError(f"heads={heads} does not divide the width {width}")
    if "num_key_value_heads" in hf:
        group = published[keys["heads"]] // published["num_key_value_heads"]
        if heads % group:
            raise errors.UserError(
                f"heads={heads} is no multiple of {group}: in {settings.model_shape}, {group} query heads share a key"
            )
        replaced["num_key_value_heads"] = heads // group
    return {**hf, **replaced}


def _published(name: str) -> hf_config.Json:
    """By the whole Hub name, or by what follows its owner."""
    short = {whole.rsplit("/", 1)[-1]: hf for whole, hf in registry.PUBLISHED.items()}
    if name not in short and name not in registry.PUBLISHED:
        registry.published(name)  # Says which there are.
    return registry.PUBLISHED.get(name) or short[name]
