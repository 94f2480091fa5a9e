"""The tokenizer of a GGUF file, without PyTorch.

`transformers` reads such tokenizers too, but it imports PyTorch, takes seconds, and splits blanks before digits in other ways than
SmolLM2's published tokenizer.
"""

import pathlib
from typing import Any

import tokenizers

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import bpe as gguf_bpe
from knnprompt_jax.models.gguf import header as gguf_header
from knnprompt_jax.models.gguf import vocabulary as gguf_vocabulary

_BUILDERS = {"gpt2": gguf_bpe.byte_level, "llama": gguf_bpe.sentencepiece}
# Phi-3's other added tokens absorb the blanks after them. No file has this; llama.cpp has it in its code.
_PHI3_KEEPS_BLANKS = ("<unk>", "<s>", "<|endoftext|>")


def load(file: pathlib.Path) -> Any:
    """Return a `transformers.PreTrainedTokenizerFast` with the token ids of the published tokenizer.

    Texts begin with BOS if the file says so, by default as in llama.cpp. EOS is never added.

    Raises:
        UserError: the file cannot be read, or its vocabulary or tokenizer is not supported.
    """
    import transformers

    header = gguf_header.read(file)
    model = gguf_header.tokenizer_fields(header).choice("model", None, _BUILDERS)
    vocabulary = gguf_vocabulary.read(header)
    try:
        tokenizer, bos = _BUILDERS[model](vocabulary)
    except errors.UserError:
        raise
    except Exception as error:  # `tokenizers` raises nothing narrower, for example for merges of unknown tokens.
        raise errors.UserError(f"{file}: no usable tokenizer: {error}".splitlines()[0]) from None
    bos = vocabulary.fields.switch("add_bos_token", bos)
    if bos and "bos" not in vocabulary.roles:
        raise vocabulary.fields.wrong("bos_token_id", "not in the file, but texts must begin with it")
    tokenizer.add_tokens(_added_tokens(vocabulary, model))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        add_bos_token=bos,
        add_eos_token=False,
        clean_up_tokenization_spaces=False,
        **{f"{role}_token": vocabulary.tokens[id_] for role, id_ in vocabulary.roles.items()},
    )


def _added_tokens(vocabulary: gguf_vocabulary.Vocabulary, model: str) -> list[tokenizers.AddedToken]:
    """Return the tokens that are never split; control tokens, BOS and the like are special."""
    special_ids = set(vocabulary.roles.values())
    added = []
    for id_, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True)):
        is_special = kind == gguf_vocabulary.CONTROL or id_ in special_ids
        if not is_special and kind != gguf_vocabulary.USER_DEFINED:
            continue
        options = {"special": is_special, "normalized": False}
        options["rstrip"] = vocabulary.arch == "phi3" and model == "llama" and token not in _PHI3_KEEPS_BLANKS
        if model == "llama" and not is_special and not gguf_bpe.has_prefix(vocabulary):
            # Gemma looks for runs of blanks after blanks became "▁".
            token, options["normalized"] = gguf_bpe.spell(vocabulary, token), True
        added.append(tokenizers.AddedToken(token, **options))
    return added
