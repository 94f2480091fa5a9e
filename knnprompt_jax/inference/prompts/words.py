"""Tokenize each distinct word of many texts only once.

A text is cut before each blank that follows another character. The tokens of its parts, one after the other, are those
of the whole text if the tokenizer is a byte-level BPE. It splits a text by a regular expression before it merges bytes,
and in all known expressions a blank after another character begins a new part. These expressions do not look behind,
and look ahead only from a blank, so that no part depends on another. Other tokenizers get whole texts.
"""

import functools
import itertools
import json
import re
import threading
from typing import Any

import numpy as np
import tokenizers
from tokenizers import models, normalizers

from knnprompt_jax.common import errors
from knnprompt_jax.inference.prompts.layout import TokenRows

_CUT = re.compile(r"(?= )(?<=\S)")
_NUM_WORDS = 2**16  # Whose tokens are kept.
_JOINED = 64  # Words of a text.


class WordTokenizer:
    """A `layout.Tokenize` of a tokenizer of `transformers`, with the special tokens that it adds by default."""

    _lock = threading.Lock()  # For the known words of all tokenizers.

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._number_by_word: dict[str, int] = {}
        self._known_words = TokenRows.of([])

    def __call__(self, texts: list[str], **options: Any) -> list[list[int]]:
        """Return the token ids of each text, tokenized whole; raise UserError if the tokenizer fails."""
        with errors.tokenizer_failures("the model's tokenizer fails on a text"):
            options |= {"return_attention_mask": False, "verbose": False}
            return self._tokenizer(texts, **options)["input_ids"] if texts else []

    def rows(self, texts: list[str]) -> TokenRows:
        """Return the same token ids as rows; words that are known are not tokenized again."""
        if not self._has_independent_words:
            return TokenRows.of(self(texts))
        words_by_text = [_CUT.split(text) for text in texts]
        words = list(itertools.chain.from_iterable(words_by_text))
        with self._lock:
            self._learn(set(words))
            numbers = np.fromiter(map(self._number_by_word.__getitem__, words), int, len(words))
            rows = self._known_words.take(numbers)
        bounds = np.cumsum([0, *map(len, words_by_text)])
        return TokenRows(rows.tokens_T, np.diff(rows.offsets_N[bounds])).prepend(self._special)

    def _learn(self, words: set[str]) -> None:
        if len(self._number_by_word) > _NUM_WORDS:
            self._number_by_word = {}
            self._known_words = TokenRows.of([])
        new = words - self._number_by_word.keys()
        plain = [word for word in new if word.isascii() and word[:1] == " " and not word[-1].isspace()]
        others = list(new.difference(plain))
        tokens = TokenRows.of(self(others, add_special_tokens=False))
        self._known_words = TokenRows.join([self._known_words, self._tokenize_joined(plain), tokens])
        self._number_by_word.update(zip([*plain, *others], itertools.count(len(self._number_by_word)), strict=False))

    def _tokenize_joined(self, words: list[str]) -> TokenRows:
        """Tokenize words of ASCII as a few texts, which is faster: a byte-level token has a character per byte."""
        texts = ["".join(words[start : start + _JOINED]) for start in range(0, len(words), _JOINED)]
        tokens_T = TokenRows.of(self(texts, add_special_tokens=False)).tokens_T
        tokens, index_T = np.unique(tokens_T, return_inverse=True)
        sizes = [len(self._tokenizer.backend_tokenizer.id_to_token(token)) for token in tokens.tolist()]
        ends_T = np.cumsum(np.append(0, np.array(sizes, int)[index_T]))
        bounds = np.cumsum([0, *map(len, words)])
        indices = np.searchsorted(ends_T, bounds)
        if not np.array_equal(ends_T[indices.clip(max=len(tokens_T))], bounds):  # The vocabulary lacks a byte.
            return TokenRows.of(self(words, add_special_tokens=False))
        return TokenRows(tokens_T, np.diff(indices))

    @functools.cached_property
    def _special(self) -> np.ndarray:
        return np.array(self([""])[0], np.int32)

    @functools.cached_property
    def _has_independent_words(self) -> bool:
        return splits_before_blanks(getattr(self._tokenizer, "backend_tokenizer", None))


def splits_before_blanks(tokenizer: tokenizers.Tokenizer | None) -> bool:
    """Return whether each token is on one side of a cut and depends only on the text there."""
    if tokenizer is None or not isinstance(tokenizer.model, models.BPE) or tokenizer.model.dropout:
        return False
    added = tokenizer.get_added_tokens_decoder().values()
    if any(token.rstrip or token.single_word or _CUT.search(token.content) for token in added):
        return False
    if not tokenizer.pre_tokenizer or not isinstance(tokenizer.normalizer, normalizers.NFC | None):
        return False
    pre_tokenizer = json.loads(tokenizer.pre_tokenizer.__getstate__())
    *splits, last = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    patterns = [split for split in splits if split["type"] != "Digits"]
    is_byte_level = last["type"] == "ByteLevel" and not last["add_prefix_space"]
    return is_byte_level and bool(patterns or last["use_regex"]) and all(split in _known_splits() for split in patterns)


def _known_splits() -> list[dict[str, Any]]:
    """Return the published splits, in the form of tokenizer.json, besides GPT-2's, which is a part of ByteLevel."""
    from knnprompt_jax.models.convert import gguf_tokenizer  # Imports `gguf`, which takes a moment.

    isolated = {"type": "Split", "behavior": "Isolated", "invert": False}
    return [{**isolated, "pattern": {"Regex": rule.pattern}} for rule in gguf_tokenizer.SPLITS.values()]
