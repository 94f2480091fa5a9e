"""A trained decoder as a Hugging Face folder: config.json, model.safetensors, tokenizer files."""

import pathlib

import jax.numpy as jnp
import tokenizers

from knnprompt_jax.models import checkpoints, decoder
from knnprompt_jax.pretraining import text

DTYPES = {"float16": jnp.float16, "bfloat16": jnp.bfloat16, "float32": jnp.float32}


def export(folder: pathlib.Path, model: decoder.Decoder, tokenizer: tokenizers.Tokenizer, dtype: str) -> None:
    """Writes a folder that `transformers` loads as a GPT-2, its weights rounded to `dtype`."""
    import transformers

    config, end = model.config, tokenizer.token_to_id(text.END_OF_TEXT)
    described = {
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.num_positions,
        "n_embd": config.width,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.mlp_width,
        "activation_function": config.activation,
        "layer_norm_epsilon": config.norm_epsilon,
        "bos_token_id": end,
        "eos_token_id": end,
    }
    checkpoints.save(folder, model, described, DTYPES[dtype])
    special = {"bos_token": text.END_OF_TEXT, "eos_token": text.END_OF_TEXT, "unk_token": text.END_OF_TEXT}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=config.num_positions, **special
    ).save_pretrained(folder)
