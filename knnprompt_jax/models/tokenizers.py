"""Tokenizers of model folders, checked for what makes prompts go wrong."""

import json
import pathlib
import re
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from knnprompt_jax.common import errors


def load(folder: pathlib.Path, for_prompts: bool = True, vocab_size: int | None = None) -> Any:
    """Return the tokenizer of a folder, one of `transformers`. No code from there runs.

    It reads special tokens in a text as text, and adds only its own, such as BOS.

    Args:
        folder: a Hugging Face folder.
        for_prompts: whether prompts are built with it, so that nothing may follow a text.
        vocab_size: the number of the model's tokens, which bounds the ids. Only special tokens may lie beyond, such as
            those for images (Gemma 3).

    Raises:
        UserError: there is no usable tokenizer, an id is outside the vocabulary, or prompts cannot be built with it.
    """
    with errors.tokenizer_failures(f"{folder}: no usable tokenizer"):
        tokenizer = _load(folder)
        bare = tokenizer("a", add_special_tokens=False)["input_ids"]
        whole = tokenizer("a")["input_ids"]
        other = tokenizer("b", add_special_tokens=False)["input_ids"]
    if bare == other:
        raise errors.UserError(f"{folder}: no usable tokenizer: it makes the same tokens {bare} of 'a' and 'b'")
    special = {id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special}
    largest = max((id_ for id_ in tokenizer.get_vocab().values() if id_ not in special), default=0)
    if vocab_size and max(largest, *whole) >= vocab_size:
        raise errors.UserError(
            f"{folder}: its tokenizer has token id {max(largest, *whole)}, but the model has {vocab_size} tokens: take "
            "the tokenizer that was published with the model"
        )
    first = whole[: len(whole) - len(bare)]
    if for_prompts and (whole != first + bare or len(set(first)) < len(first)):
        tokens = tokenizer.convert_ids_to_tokens(whole)
        raise errors.UserError(
            f"{folder}: its tokenizer makes {tokens} of the text 'a'; a prompt must not end in a special token, and not "
            "begin with the same one twice: set add_eos_token to false, or correct the post-processor"
        )
    _read_special_tokens_as_text(tokenizer)
    return tokenizer


def _load(folder: pathlib.Path) -> Any:
    import transformers

    # `AutoTokenizer` replaces parts of tokenizer.json by those of the class that the folder or its model type names.
    is_whole = (folder / "tokenizer.json").is_file()
    loader = transformers.PreTrainedTokenizerFast if is_whole else transformers.AutoTokenizer
    try:
        tokenizer = loader.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        if is_whole:
            _set_roles(tokenizer, folder)
    except Exception as error:  # `tokenizers` raises nothing narrower for a damaged tokenizer.json.
        raise errors.UserError(
            f"{folder}: no usable tokenizer (tokenizer.json, or vocab.json and merges.txt): {errors.one_line(error)}"
        ) from error
    return tokenizer


def _set_roles(tokenizer: Any, folder: pathlib.Path) -> None:
    """Take BOS and EOS from config.json where tokenizer_config.json does not mention them, as in GPT-2's folders."""
    paths = [folder / name for name in ("config.json", "tokenizer_config.json")]
    ids, named = (json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {} for path in paths)
    for role in ("bos_token", "eos_token"):
        id_ = ids.get(f"{role}_id")
        if role not in named and getattr(tokenizer, role) is None and type(id_) is int and 0 <= id_ < len(tokenizer):
            setattr(tokenizer, role, tokenizer.convert_ids_to_tokens(id_))


def _read_special_tokens_as_text(tokenizer: Any) -> None:
    """Make the tokenizer read special tokens in texts as plain text.

    If the vocabulary can still produce one, the tokenizer cuts it after its first character.
    """
    tokenizer.split_special_tokens = True
    if not tokenizer.is_fast:  # It splits them itself.
        return
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    special = {token.content: id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special}
    encodings = backend.encode_batch([*special, "a".join(special)], add_special_tokens=False)
    found = {id_ for encoding in encodings for id_ in encoding.ids}
    # A vocabulary of pieces (Unigram) has them among its pieces, and merges of SentencePiece may form them.
    patterns = [f"{re.escape(token[0])}(?={re.escape(token[1:])})" for token, id_ in special.items() if id_ in found]
    if patterns:
        cut = pre_tokenizers.Split(tokenizers.Regex("|".join(patterns)), "isolated")
        earlier = [backend.pre_tokenizer] if backend.pre_tokenizer else []
        backend.pre_tokenizer = pre_tokenizers.Sequence([*earlier, cut])
