"""The tokenizer of a GGUF file, without PyTorch."""

import pathlib
from typing import Any

import tokenizers

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import bpe as gguf_bpe
from knnprompt_jax.models.gguf import fields as gguf_fields
from knnprompt_jax.models.gguf import header as gguf_header
from knnprompt_jax.models.gguf import sentencepiece as gguf_sentencepiece
from knnprompt_jax.models.gguf import vocabulary as gguf_vocabulary

_BUILDERS = {"gpt2": gguf_bpe.build, "llama": gguf_sentencepiece.build}
# Phi-3's added tokens take the blanks behind them along, but these do not; no file says so, llama.cpp has it in its code.
_PHI3_WITHOUT_BLANKS = ("<unk>", "<s>", "<|endoftext|>")


def load(file: pathlib.Path) -> Any:
    """A `transformers.PreTrainedTokenizerFast` that gives the token numbers of the published tokenizer.

    BOS stands before a text as the file says, or by default as in llama.cpp; EOS is never added.

    Raises:
        UserError: the file cannot be read, has no usable vocabulary, or a tokenizer that is not supported.
    """
    import transformers

    header = gguf_header.read(file)
    kind = gguf_fields.of_tokenizer(header).choice("model", None, _BUILDERS)
    vocabulary = gguf_vocabulary.read(header)
    try:
        tokenizer, bos = _BUILDERS[kind](vocabulary)
    except errors.UserError:
        raise
    except Exception as error:  # `tokenizers` raises nothing narrower, such as for merges of what is no token.
        raise errors.UserError(f"{file}: no usable tokenizer: {error}".splitlines()[0]) from None
    bos = vocabulary.fields.switch("add_bos_token", bos)
    if bos and "bos" not in vocabulary.roles:
        raise vocabulary.fields.wrong("bos_token_id", "not in the file, and texts are to start with it")
    tokenizer.add_tokens(_added(vocabulary, kind))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        add_bos_token=bos,
        add_eos_token=False,
        clean_up_tokenization_spaces=False,
        **{f"{role}_token": vocabulary.tokens[number] for role, number in vocabulary.roles.items()},
    )


def _added(vocabulary: gguf_vocabulary.Vocabulary, kind: str) -> list[tokenizers.AddedToken]:
    """The tokens that stay whole wherever a text has them; control tokens, BOS and the like are special."""
    roles = set(vocabulary.roles.values())
    return [
        _token(vocabulary, kind, token, which == gguf_vocabulary.CONTROL or number in roles)
        for number, (token, which) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
        if which in (gguf_vocabulary.CONTROL, gguf_vocabulary.USER_DEFINED) or number in roles
    ]


def _token(vocabulary: gguf_vocabulary.Vocabulary, kind: str, token: str, special: bool) -> tokenizers.AddedToken:
    takes_blanks = vocabulary.arch == "phi3" and kind == "llama" and token not in _PHI3_WITHOUT_BLANKS
    if kind == "llama" and not special and not gguf_sentencepiece.has_prefix(vocabulary):
        # Gemma's runs of blanks are looked for after blanks became "▁".
        spelled = gguf_sentencepiece.spell(vocabulary, token)
        return tokenizers.AddedToken(spelled, normalized=True, special=False, rstrip=takes_blanks)
    return tokenizers.AddedToken(token, normalized=False, special=special, rstrip=takes_blanks)
