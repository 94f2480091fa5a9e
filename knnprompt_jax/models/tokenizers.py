"""Tokenizers of model folders, checked for what makes prompts go wrong."""

import json
import pathlib
import re
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from knnprompt_jax.common import errors
from knnprompt_jax.models import split_rules

_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token")
# Keys of tokenizer_config.json that change no token ids of tokenizer.json if it has the tokens of `_ROLES`.
_HARMLESS = {*_ROLES, "tokenizer_class", "backend", "model_max_length", "chat_template", "clean_up_tokenization_spaces"}
WORD_START = re.compile(r"(?= )(?<=\S)")  # Before a blank that follows another character.
_NOT_FOR_IDS = {"return_attention_mask", "verbose"}  # Options of a call that change no token ids.


class Tokenizer:
    """The tokenizer of a folder. It reads special tokens in a text as text, and adds only its own, such as BOS.

    Token ids come from tokenizer.json. Everything else, and the ids of a folder whose other files may change
    tokenizer.json, comes from the tokenizer of `transformers`. Importing `transformers` takes a second.
    """

    _loaded: Any = None

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._backend = _read_plain(folder)
        self.backend_tokenizer = self._backend or self._whole().backend_tokenizer

    def __call__(self, *texts: Any, add_special_tokens: bool = True, **options: Any) -> Any:
        """Return token ids as "input_ids"; the arguments are those of the tokenizer of `transformers`."""
        if self._backend is None or len(texts) > 1 or options.keys() - _NOT_FOR_IDS:
            return self._whole()(*texts, add_special_tokens=add_special_tokens, **options)
        if isinstance(texts[0], str):
            return {"input_ids": self._backend.encode(texts[0], add_special_tokens=add_special_tokens).ids}
        encodings = self._backend.encode_batch_fast(texts[0], add_special_tokens=add_special_tokens)
        return {"input_ids": [encoding.ids for encoding in encodings]}

    def __len__(self) -> int:
        """The number of tokens, added tokens included."""
        return self.backend_tokenizer.get_vocab_size()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # A copy has no folder yet.
            raise AttributeError(name)
        return getattr(self._whole(), name)

    def _whole(self) -> Any:
        """Return the tokenizer of `transformers`."""
        if self._loaded is None:
            self._loaded = _load_whole(self._folder)
            self._loaded.split_special_tokens = True
            _read_special_tokens_as_text(self._loaded.backend_tokenizer)
        return self._loaded


def load(folder: pathlib.Path, for_prompts: bool = True, vocab_size: int | None = None) -> Tokenizer:
    """Return the tokenizer of a folder. No code from there runs.

    Args:
        folder: a Hugging Face folder.
        for_prompts: whether prompts are built with it, so that nothing may follow a text.
        vocab_size: the number of the model's tokens, which bounds the ids. Only special tokens may lie beyond, such as
            those for images (Gemma 3).

    Raises:
        UserError: there is no usable tokenizer, an id is outside the vocabulary, or prompts cannot be built with it.
    """
    with errors.tokenizer_failures(f"{folder}: no usable tokenizer"):
        try:
            tokenizer = Tokenizer(folder)
        except Exception as error:  # `tokenizers` raises nothing narrower for a damaged tokenizer.json.
            reason = errors.one_line(error)
            raise errors.UserError(f"{folder}: no usable tokenizer (tokenizer.json, vocab.json): {reason}") from error
        bare, bare_b = tokenizer(["a", "b"], add_special_tokens=False)["input_ids"]
        whole = tokenizer("a")["input_ids"]
    if bare == bare_b:
        raise errors.UserError(f"{folder}: no usable tokenizer: it makes the same tokens {bare} of 'a' and 'b'")
    backend = tokenizer.backend_tokenizer
    special = {id_ for id_, token in backend.get_added_tokens_decoder().items() if token.special}
    largest = max((id_ for id_ in backend.get_vocab().values() if id_ not in special), default=0)
    if vocab_size and max(largest, *whole) >= vocab_size:
        has = f"its tokenizer has token id {max(largest, *whole)}, but the model has {vocab_size} tokens"
        raise errors.UserError(f"{folder}: {has}: take the tokenizer that was published with the model")
    first = whole[: len(whole) - len(bare)]
    if for_prompts and (whole != first + bare or len(set(first)) < len(first)):
        tokens = [backend.id_to_token(id_) for id_ in whole]
        raise errors.UserError(
            f"{folder}: its tokenizer makes {tokens} of the text 'a'; a prompt must not end in a special token, and not "
            "begin with the same one twice: set add_eos_token to false, or correct the post-processor"
        )
    return tokenizer


def _read_plain(folder: pathlib.Path) -> tokenizers.Tokenizer | None:
    """Return the tokenizer of tokenizer.json; None if there is none or other files of the folder may change it."""
    names = [name for name in ("special_tokens_map.json", "added_tokens.json") if (folder / name).exists()]
    config = _read_json(folder / "tokenizer_config.json")
    if names or config.keys() - _HARMLESS or not (folder / "tokenizer.json").is_file():
        return None
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    special = [token.content for token in backend.get_added_tokens_decoder().values() if token.special]
    if any(config[role] not in special for role in _ROLES if role in config):
        return None
    backend.no_truncation()
    backend.no_padding()
    _read_special_tokens_as_text(backend)
    return backend


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _load_whole(folder: pathlib.Path) -> Any:
    import transformers

    # `AutoTokenizer` replaces parts of tokenizer.json by those of the class that the folder or its model type names.
    is_whole = (folder / "tokenizer.json").is_file()
    loader = transformers.PreTrainedTokenizerFast if is_whole else transformers.AutoTokenizer
    tokenizer = loader.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    if is_whole:
        _set_roles(tokenizer, folder)
    return tokenizer


def _set_roles(tokenizer: Any, folder: pathlib.Path) -> None:
    """Take BOS and EOS from config.json where tokenizer_config.json does not mention them, as in GPT-2's folders."""
    ids = _read_json(folder / "config.json")
    named = _read_json(folder / "tokenizer_config.json")
    for role in ("bos_token", "eos_token"):
        id_ = ids.get(f"{role}_id")
        if role not in named and getattr(tokenizer, role) is None and type(id_) is int and 0 <= id_ < len(tokenizer):
            setattr(tokenizer, role, tokenizer.convert_ids_to_tokens(id_))


def _read_special_tokens_as_text(backend: tokenizers.Tokenizer) -> None:
    """Make a tokenizer read special tokens in texts as plain text.

    If the vocabulary can still produce one, the tokenizer cuts it after its first character.
    """
    backend.encode_special_tokens = True
    special = {token.content: id_ for id_, token in backend.get_added_tokens_decoder().items() if token.special}
    encodings = backend.encode_batch([*special, "a".join(special)], add_special_tokens=False)
    found = {id_ for encoding in encodings for id_ in encoding.ids}
    # A vocabulary of pieces (Unigram) has them among its pieces, and merges of SentencePiece may form them.
    patterns = [f"{re.escape(token[0])}(?={re.escape(token[1:])})" for token, id_ in special.items() if id_ in found]
    if patterns:
        cut = pre_tokenizers.Split(tokenizers.Regex("|".join(patterns)), "isolated")
        earlier = [backend.pre_tokenizer] if backend.pre_tokenizer else []
        backend.pre_tokenizer = pre_tokenizers.Sequence([*earlier, cut])


def splits_at_words(tokenizer: tokenizers.Tokenizer | None) -> bool:
    """Return whether the tokens of a text are those of its words, cut at each `WORD_START`, one after the other.

    They are if the tokenizer is a byte-level BPE with a known rule. It splits a text by a regular expression before it
    merges bytes, and in all known expressions a blank after another character begins a new part. These expressions do
    not look behind, and look ahead only from a blank, so that no part depends on another.
    """
    if not tokenizer or not isinstance(tokenizer.model, models.BPE) or tokenizer.model.dropout:
        return False
    added = tokenizer.get_added_tokens_decoder().values()
    if any(token.rstrip or token.single_word or WORD_START.search(token.content) for token in added):
        return False
    if not tokenizer.pre_tokenizer or not isinstance(tokenizer.normalizer, normalizers.NFC | None):
        return False
    pre_tokenizer = json.loads(tokenizer.pre_tokenizer.__getstate__())
    *earlier, last = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    patterns = [step for step in earlier if step["type"] != "Digits"]
    isolated = {"type": "Split", "behavior": "Isolated", "invert": False}
    known = [{**isolated, "pattern": {"Regex": rule.pattern}} for rule in split_rules.SPLITS.values()]
    is_byte_level = last["type"] == "ByteLevel" and not last["add_prefix_space"]
    return is_byte_level and bool(patterns or last["use_regex"]) and all(step in known for step in patterns)
