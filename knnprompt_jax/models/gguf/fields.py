"""The metadata of a GGUF file, read value by value and validated."""

from typing import Any

import numpy as np

from knnprompt_jax.models import hf_config
from knnprompt_jax.models.gguf import header as gguf_header

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "olmo2", "smollm3", "gptneox", "gpt2")
# These values do not change the model's results.
_HARMLESS = ("vocab_size", "tensor_data_layout", "rope.scaling.finetuned")


class Fields(hf_config.Fields):
    """The values of a file whose keys begin with `prefix`, under the rest of the key."""

    def __init__(self, header: gguf_header.Header, prefix: str):
        values = {key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)}
        super().__init__(values, str(header.file), prefix)
        self.header = header

    @property
    def arch(self) -> str:
        return self.prefix.removesuffix(".")

    def _matters(self, key: str, value: Any) -> bool:
        """Return whether an unread value may change the model: not if it is 0, false or empty."""
        return key not in _HARMLESS and bool(value.any() if isinstance(value, np.ndarray) else value)


def model_fields(header: gguf_header.Header) -> Fields:
    """Return the values under the architecture's prefix; raises UserError if the architecture is not supported."""
    return Fields(header, Fields(header, "general.").choice("architecture", None, ARCHITECTURES) + ".")


def tokenizer_fields(header: gguf_header.Header) -> Fields:
    """Return the values that describe the tokenizer."""
    return Fields(header, "tokenizer.ggml.")


def num_layers(fields: Fields) -> int:
    """Return the number of layers; raises UserError if the tensors belong to another number of layers."""
    layers = fields.size("block_count")
    names = [name.split(".") for name in fields.header.tensors]
    found = len({parts[1] for parts in names if parts[0] == "blk" and len(parts) > 2})
    if found != layers:
        raise fields.wrong("block_count", f"{layers} layers, but the tensors belong to {found}")
    return layers
