"""The whole of pretraining: text files in, a Hugging Face folder out; interrupted, it continues where it stopped."""

import math
import pathlib
from collections.abc import Sequence

import tokenizers

from knnprompt_jax import errors, files
from knnprompt_jax.pretraining import bpe, export, text, trainer
from knnprompt_jax.pretraining import settings as settings_lib


def run(settings: settings_lib.PretrainSettings) -> dict[str, float]:
    """Trains (or goes on training) and exports. Returns held-out loss (nats per token) and perplexity.

    Raises:
        UserError: no text, too little text, or an output folder that cannot be written, that another process writes or
            that holds another model's checkpoints.
    """
    folder = pathlib.Path(settings.output)
    files.check_writable(folder, folder=True)
    with files.lock(folder):
        return _run(settings, folder)


def _run(settings: settings_lib.PretrainSettings, folder: pathlib.Path) -> dict[str, float]:
    documents, held_out = text.split_held_out(list(text.read_documents(text.find_files(settings.text))))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(folder / "bpe.json", documents, settings.vocab_size)

    def log(line: str) -> None:
        print(line, flush=True)
        with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    train_tokens, held_out_tokens = (text.encode(tokenizer, texts) for texts in (documents, held_out))
    model = trainer.train(settings, folder, train_tokens, held_out_tokens, log)
    loss = trainer.evaluate(model, held_out_tokens, settings)
    export.export(folder / "model", model, tokenizer, settings.export_dtype)
    return {"held_out_loss": loss, "held_out_perplexity": math.exp(loss)}


def _tokenizer(path: pathlib.Path, documents: Sequence[str], vocab_size: int) -> tokenizers.Tokenizer:
    if not path.exists():
        with files.new_file(path) as unfinished:
            bpe.train(documents, vocab_size).save(str(unfinished))
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    if tokenizer.get_vocab_size() != vocab_size:
        raise errors.UserError(
            f"{path}: has {tokenizer.get_vocab_size()} tokens where {vocab_size} are wanted: "
            "choose another output folder, a smaller vocab_size or more text"
        )
    return tokenizer
