"""Tokenizers of model folders and GGUF files, checked for what makes prompts go wrong."""

import contextlib
import json
import math
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers

from knnprompt_jax import errors
from knnprompt_jax.models.gguf import tokenizer as gguf_tokenizer
from knnprompt_jax.models.weights import kept_files

_VOCABULARIES = ("vocab.txt", ".model", ".tiktoken")  # Of other kinds of tokenizers.
_JSON_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "config.json")
_BYTE = re.compile("<0x[0-9A-F]{2}>")  # A token of a byte, which no merge makes.
_MERGED_SHARE = 0.98  # Of the longer tokens of vocab.json; special tokens are among them, and have no merges.
_NUM_PROBES = 64
_MOST_GROWTH = 100  # Characters that a normalizer may make of one.


def load(path: pathlib.Path, for_prompts: bool = True, vocab_size: int | None = None) -> Any:
    """Return the tokenizer of a Hugging Face folder (of `transformers`) or a GGUF file. No code from there runs.

    It reads special tokens in a text as text, and adds only its own, such as BOS.

    Args:
        path: a folder or a GGUF file.
        for_prompts: whether prompts are built with it, which requires more of it.
        vocab_size: the number of the model's tokens, which bounds the ids. Only special tokens may lie beyond, such as
            those for images (Gemma 3).

    Raises:
        UserError: there is no usable tokenizer; an id is outside the vocabulary; the normalizer may lengthen texts too
            much; BPE drops merges at random, or has none. For prompts also: the tokenizer ends each text with a token,
            or begins it with the same token twice.
    """
    is_gguf = path.suffix == ".gguf"
    if not is_gguf:
        _check_files(path)

    def load_and_check() -> Any:
        with _quiet(), errors.tokenizer_failures(f"{path}: no usable tokenizer"):
            tokenizer = gguf_tokenizer.load(path) if is_gguf else _load_folder(path)
            return _checked(tokenizer, path, for_prompts, vocab_size)

    if not is_gguf:
        return load_and_check()
    ending = f"{for_prompts}.{vocab_size}.tokenizer.json"
    return kept_files.keep(path, ending, load_and_check, _dump, _load_dumped)


def _dump(tokenizer: gguf_tokenizer.Tokenizer) -> str:
    return f"{json.dumps(tokenizer.roles)}\n{tokenizer.backend_tokenizer.to_str()}"


def _load_dumped(content: bytes) -> gguf_tokenizer.Tokenizer:
    """Return the tokenizer of `_dump`, which was checked."""
    roles, _, backend = content.partition(b"\n")
    tokenizer = gguf_tokenizer.Tokenizer(tokenizers.Tokenizer.from_buffer(backend), json.loads(roles))
    tokenizer.split_special_tokens = True
    tokenizer.backend_tokenizer.encode_special_tokens = True
    return tokenizer


def _checked(tokenizer: Any, path: pathlib.Path, for_prompts: bool, vocab_size: int | None) -> Any:
    special = {id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special}
    largest = max((id_ for id_ in tokenizer.get_vocab().values() if id_ not in special), default=0)
    if vocab_size and largest >= vocab_size:
        raise errors.UserError(
            f"{path}: its tokenizer has token id {largest}, but the model has {vocab_size} tokens (ids 0 to {vocab_size - 1}): "
            "take the tokenizer that was published with the model"
        )
    normalizer = tokenizer.backend_tokenizer.normalizer if tokenizer.is_fast else None
    if normalizer and _growth(json.loads(normalizer.__getstate__())) > _MOST_GROWTH:
        raise errors.UserError(f"{path}: its normalizer may replace a character by more than {_MOST_GROWTH}")
    texts = _probes(tokenizer, special)
    _check_distinct(path, tokenizer, texts)
    if tokenizer.is_fast and isinstance(tokenizer.backend_tokenizer.model, models.BPE):
        _check_merges(path, tokenizer, texts)
    if for_prompts:
        _check_prompts(path, tokenizer, vocab_size)
    _read_special_tokens_as_text(tokenizer)
    return tokenizer


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Discard what Rust prints on standard error when it panics; the error has the same text."""
    try:
        kept = os.dup(2)
    except OSError:  # It is closed.
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def _check_files(folder: pathlib.Path) -> None:
    """Raise UserError if a folder has no tokenizer: `transformers` would make one that knows no text."""
    names = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    if "tokenizer.json" in names:
        return
    if not ({"vocab.json", "merges.txt"} <= names or any(name.endswith(_VOCABULARIES) for name in names)):
        raise errors.UserError(f"{folder}: no tokenizer (tokenizer.json, or vocab.json and merges.txt)")
    if "merges.txt" in names:
        _check_merges_file(folder)


def _check_merges_file(folder: pathlib.Path) -> None:
    """Raise UserError if merges.txt lacks the merges of many tokens of vocab.json, as after a download that was cut."""
    try:
        vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
        lines = (folder / "merges.txt").read_text("utf-8").splitlines()
    except (ValueError, OSError):
        return  # `_load_folder` names the damage.
    count = sum(1 for line in lines if line.strip() and not line.startswith("#version"))
    longer = sum(len(token) > 1 for token in vocabulary)
    if 0 < count < _MERGED_SHARE * longer:
        raise errors.UserError(
            f"{folder / 'merges.txt'}: {count:,} merges for {longer:,} tokens of several characters: it is cut off; take "
            "the file that was published with the model"
        )


def _load_folder(folder: pathlib.Path) -> Any:
    import transformers

    # `AutoTokenizer` replaces parts of tokenizer.json by those of the class that the folder or its model type names.
    is_whole = (folder / "tokenizer.json").is_file()
    loader = transformers.PreTrainedTokenizerFast if is_whole else transformers.AutoTokenizer
    try:
        tokenizer = loader.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        if not (isinstance(tokenizer.model_max_length, int | float) and tokenizer.model_max_length > 0):
            raise ValueError(f"model_max_length is {tokenizer.model_max_length!r}")
        return _with_roles(tokenizer, folder) if is_whole else tokenizer
    except Exception as error:  # `tokenizers` raises nothing narrower for a damaged tokenizer.json.
        lines = (str(error) or type(error).__name__).splitlines()
        reason = _damage(folder) or (" ".join(lines) if lines[0].rstrip().endswith(":") else lines[0])
        raise errors.UserError(
            f"{folder}: no usable tokenizer (tokenizer.json, or vocab.json and merges.txt): {reason}"
        ) from error


def _damage(folder: pathlib.Path) -> str:
    """Say which JSON file of a folder is damaged or no file, for a message; "" if none is."""
    for name in _JSON_FILES:
        if not (folder / name).is_file():
            if os.path.lexists(folder / name):
                return f"{name} is a {'folder' if (folder / name).is_dir() else 'broken link'}"
            continue
        content = (folder / name).read_bytes()
        if content.startswith(b"version https://git-lfs"):
            return f"{name} is a pointer of Git LFS, not the file: git lfs pull downloads it"
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            return f"{name} is {'not JSON' if content.strip() else 'empty'}; was it downloaded completely?"
        if not isinstance(value, dict):
            return f"{name} is a JSON {type(value).__name__}, not an object"
        if name == "vocab.json" and not value:
            return f"{name} has no tokens"
        kinds = {"model": dict, "added_tokens": list} if name == "tokenizer.json" else {}
        for key, kind in kinds.items():
            if not isinstance(value.get(key), kind):
                return f"{name} lacks {key!r}"
    return ""


def _with_roles(tokenizer: Any, folder: pathlib.Path) -> Any:
    """Take BOS and EOS from config.json where tokenizer_config.json does not mention them, as in GPT-2's folders."""
    ids = _read_json(folder / "config.json")
    named = _read_json(folder / "tokenizer_config.json")
    for role in ("bos_token", "eos_token"):
        id_ = ids.get(f"{role}_id")
        if role not in named and getattr(tokenizer, role) is None and type(id_) is int and 0 <= id_ < len(tokenizer):
            setattr(tokenizer, role, tokenizer.convert_ids_to_tokens(id_))
    return tokenizer


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    """Return the object in a file; an empty one if there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _check_prompts(path: pathlib.Path, tokenizer: Any, vocab_size: int | None) -> None:
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a", add_special_tokens=True)["input_ids"]
    first = whole[: len(whole) - len(bare)]
    last = whole[len(bare) :]

    def name(tokens: list[int]) -> str:
        return str(tokenizer.convert_ids_to_tokens(tokens[:1])[0])

    if vocab_size and max(whole, default=0) >= vocab_size:
        raise errors.UserError(
            f"{path}: its tokenizer begins or ends every text with token id {max(whole)}, but the model has {vocab_size} tokens"
        )
    if not bare:
        raise errors.UserError(f"{path}: its tokenizer makes no token of the text 'a'")
    if whole[-len(bare) :] != bare:
        raise errors.UserError(
            f"{path}: its tokenizer ends every text with {name(last[-1:])!r}, so the model cannot predict what comes next: "
            "set add_eos_token to false, or remove the token from the post-processor"
        )
    if len(set(first)) < len(first):
        raise errors.UserError(f"{path}: its tokenizer begins every text with {name(first)!r} twice")


def _probes(tokenizer: Any, special: set[int]) -> list[str]:
    """Return the distinct texts of some tokens of the vocabulary."""
    ids = sorted({*tokenizer.get_vocab().values()} - special)
    chosen = ids[:: max(1, len(ids) // _NUM_PROBES)]
    texts = [text.strip() for text in tokenizer.batch_decode([[id_] for id_ in chosen])]
    return [text for text in dict.fromkeys(texts) if text and "\ufffd" not in text]


def _check_distinct(path: pathlib.Path, tokenizer: Any, texts: list[str]) -> None:
    """Raise UserError unless different texts have different tokens."""
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    if len({tuple(tokens) for tokens in encoded}) <= max(1, len(texts) // 2):
        examples = f", such as {texts[0]!r} and {texts[-1]!r}" if len(texts) > 1 else ""
        raise errors.UserError(
            f"{path}: its tokenizer makes the same tokens of different texts{examples}: take the tokenizer that was "
            "published with the model"
        )


def _check_merges(path: pathlib.Path, tokenizer: Any, texts: list[str]) -> None:
    """Raise UserError if a BPE tokenizer drops merges at random, or has none but a vocabulary of longer tokens."""
    if tokenizer.backend_tokenizer.model.dropout:
        raise errors.UserError(
            f"{path}: its tokenizer drops merges at random, so results could not be repeated: set dropout to null"
        )
    unmerged = {*map(str, tokenizer.added_tokens_decoder.values()), tokenizer.unk_token}

    def is_merged(token: str) -> bool:
        return len(token) > 1 and token not in unmerged and not _BYTE.fullmatch(token)

    texts = [
        2 * text for text in texts if len(text) > 1 and text not in unmerged
    ]  # Twice: in no vocabulary as a whole.
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    num_merged = sum(any(map(is_merged, tokenizer.convert_ids_to_tokens(ids))) for ids in encoded)
    if 4 * num_merged < len(texts):
        raise errors.UserError(
            f"{path}: its tokenizer has no merges and cuts every text into characters: take the files that were "
            "published with the model"
        )


def _growth(normalizer: dict[str, Any]) -> int:
    """Return the number of characters that replacements, one after the other, make of one character at most."""
    steps = normalizer.get("normalizers", [])
    own = normalizer.get("content") or normalizer.get("prepend") or " "
    return math.prod([len(own), *map(_growth, steps)])


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
