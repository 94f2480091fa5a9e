"""The whole of pretraining: text files in, a Hugging Face folder out; interrupted, it continues where it stopped."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence

import tokenizers

from knnprompt_jax import errors
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import registry
from knnprompt_jax.pretraining import bpe, export, text, trainer


@dataclasses.dataclass(frozen=True)
class PretrainSettings:
    """A model's size, its text and how to train it; see configs/pretrain.py."""

    text: tuple[str, ...]
    output: str
    vocab_size: int = 5120
    width: int = 256
    layers: int = 5
    heads: int = 4
    context: int = 1024
    steps: int = 2000
    batch: int = 4
    learning_rate: float = 2e-3
    warmup: int = 100
    decay: float = 0.25
    weight_decay: float = 0.1
    seed: int = 0
    remat: bool = False
    evaluate_every: int = 100
    checkpoint_every: int = 50
    export_dtype: str = "float16"

    def __post_init__(self) -> None:
        if not self.text:
            raise errors.UserError("text=(): give the text files to train on, as --config.text=folder,other/*.txt")
        for name in ("width", "layers", "heads", "context", "steps", "batch", "evaluate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise errors.UserError(f"{name}={getattr(self, name)}: at least 1 is needed")
        if self.width % self.heads:
            raise errors.UserError(f"heads={self.heads} does not divide width={self.width}")
        if self.vocab_size < 257:
            raise errors.UserError(
                f"vocab_size={self.vocab_size}: at least 257 is needed, the bytes and the end of text"
            )
        if self.export_dtype not in export.DTYPES:
            raise errors.UserError(f"export_dtype={self.export_dtype!r}: choose from {', '.join(export.DTYPES)}")

    @property
    def model_config(self) -> config_lib.DecoderConfig:
        shape = {"n_embd": self.width, "n_layer": self.layers, "n_head": self.heads}
        shape |= {"vocab_size": self.vocab_size, "n_positions": self.context}
        return registry.config_from_hf({"model_type": "gpt2", **shape})

    @property
    def train_config(self) -> trainer.TrainConfig:
        shared = {field.name for field in dataclasses.fields(trainer.TrainConfig)} & set(vars(self))
        return trainer.TrainConfig(**{name: getattr(self, name) for name in shared})


def run(settings: PretrainSettings) -> dict[str, float]:
    """Trains (or goes on training) and exports. Returns held-out loss (nats a token) and perplexity.

    Raises:
        UserError: no text, too little text, or an output folder that holds another model's checkpoints.
    """
    folder = pathlib.Path(settings.output)
    documents, held_out = text.split_held_out(list(text.read_documents(text.find_files(settings.text))))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(folder / "bpe.json", documents, settings.vocab_size)
    job = trainer.Trainer(settings.model_config, settings.train_config, folder)

    def log(line: str) -> None:
        print(line, flush=True)
        with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    loss = job.train(text.encode(tokenizer, documents), text.encode(tokenizer, held_out), log)
    export.export(folder / "model", job.model, tokenizer, settings.export_dtype)
    return {"held_out_loss": loss, "held_out_perplexity": math.exp(loss)}


def _tokenizer(path: pathlib.Path, documents: Sequence[str], vocab_size: int) -> tokenizers.Tokenizer:
    if not path.exists():
        unfinished = path.with_suffix(".tmp")
        bpe.train(documents, vocab_size).save(str(unfinished))
        unfinished.replace(path)
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    if tokenizer.get_vocab_size() != vocab_size:
        raise errors.UserError(
            f"{path}: has {tokenizer.get_vocab_size()} tokens where {vocab_size} are wanted: "
            "choose another output folder, a smaller vocab_size or more text"
        )
    return tokenizer
