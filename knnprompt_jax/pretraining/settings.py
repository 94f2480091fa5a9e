"""The options of pretraining; their defaults are those of the shipped model."""

import dataclasses

from knnprompt_jax import errors, options
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import registry
from knnprompt_jax.pretraining import export


@dataclasses.dataclass(frozen=True)
class PretrainSettings(options.Options):
    """A GPT-2's size, its text and how to train it."""

    text: tuple[str, ...] = options.option(
        ("corpus",),
        ".txt or .txt.gz files, folders of them, glob patterns; a line <|endoftext|> ends a document.",
        needed=True,
    )
    output: str = options.option(
        "checkpoints/pretrain", "Folder of the checkpoints, log.jsonl and, in the end, model/.", needed=True
    )
    vocab_size: int = options.option(5120, "Of byte-level BPE trained on the text.", least=257)
    width: int = options.option(256, "Of the blocks; the number of heads divides it.", least=1)
    layers: int = options.option(5, "Transformer blocks.", least=1)
    heads: int = options.option(4, "Attention heads of each block.", least=1)
    context: int = options.option(1024, "Context length in tokens.", least=1)
    steps: int = options.option(2000, "Steps of the optimizer.", least=1)
    batch: int = options.option(4, "Sequences of `context` tokens per step.", least=1)
    learning_rate: float = options.option(2e-3, "AdamW's, between warm-up and decay.", least=0)
    warmup: int = options.option(100, "Steps over which the rate rises from zero.", least=0)
    decay: float = options.option(
        0.25, "Share of the steps, the last, over which the rate falls to zero.", least=0, most=1
    )
    weight_decay: float = options.option(0.1, "AdamW's, but of biases and normalisation.", least=0)
    clip: float = options.option(1.0, "The largest norm of the gradient.", least=0)
    seed: int = options.option(0, "Of the first weights and the order of documents.", least=0)
    remat: bool = options.option(False, "Recompute blocks in the backward pass: less memory, a third more work.")
    evaluate_every: int = options.option(100, "Steps between lines of the log.", least=1)
    checkpoint_every: int = options.option(50, "Steps between checkpoints.", least=1)
    export_dtype: str = options.option("float16", "Of the exported weights.", choices=export.DTYPES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise errors.UserError(f"heads={self.heads} does not divide width={self.width}")

    @property
    def sizes(self) -> dict[str, int]:
        """What makes the model another one, under GPT-2's names in config.json."""
        shape = {"n_embd": self.width, "n_layer": self.layers, "n_head": self.heads}
        return shape | {"vocab_size": self.vocab_size, "n_positions": self.context}

    @property
    def model_config(self) -> config_lib.DecoderConfig:
        return registry.config_from_hf({"model_type": "gpt2", **self.sizes})
