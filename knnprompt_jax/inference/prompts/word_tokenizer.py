"""Tokenize each distinct word of many texts only once.

A word begins with the blank before it. Its tokens are the same in every text if `tokenizers.splits_at_words` says so.
Other tokenizers get whole texts.
"""

import itertools
import threading
from typing import Any

import numpy as np

from knnprompt_jax.common import errors
from knnprompt_jax.inference.prompts.layout import TokenRows
from knnprompt_jax.models import tokenizers

_MAX_TOKENS = 2**18  # Of known words: above, all are forgotten. A text without blanks is one long word.
_JOINED = 64  # Words that are tokenized as one text.


class WordTokenizer:
    """A `layout.Tokenize` of a tokenizer of `transformers`, with the special tokens that it adds by default."""

    _lock = threading.Lock()  # For the known words of all tokenizers.

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._splits_at_words = tokenizers.splits_at_words(getattr(tokenizer, "backend_tokenizer", None))
        self._number_by_word: dict[str, int] = {}
        self._known_words = TokenRows.of([])

    def __call__(self, texts: list[str], **options: Any) -> list[list[int]]:
        """Return the token ids of each text, tokenized whole; raise UserError if the tokenizer fails."""
        with errors.tokenizer_failures("the model's tokenizer fails on a text"):
            options |= {"return_attention_mask": False, "verbose": False}
            return self._tokenizer(texts, **options)["input_ids"] if texts else []

    def rows(self, texts: list[str]) -> TokenRows:
        """Return the same token ids as rows; words that are known are not tokenized again."""
        if not self._splits_at_words:
            return TokenRows.of(self(texts))
        words_by_text = [tokenizers.WORD_START.split(text) for text in texts]
        words = list(itertools.chain.from_iterable(words_by_text))
        with self._lock:
            self._learn(set(words))
            numbers = np.fromiter(map(self._number_by_word.__getitem__, words), int, len(words))
            rows = self._known_words.take(numbers)
        bounds = np.cumsum([0, *map(len, words_by_text)])
        [special] = self([""])
        return TokenRows(rows.tokens_T, np.diff(rows.offsets_N[bounds])).prepend(np.array(special, np.int32))

    def _learn(self, words: set[str]) -> None:
        """Tokenize the words that are not known yet."""
        new = words - self._number_by_word.keys()
        if not new:
            return
        if len(self._known_words.tokens_T) > _MAX_TOKENS:
            new = words
            self._number_by_word = {}
            self._known_words = TokenRows.of([])
        plain = [word for word in new if word.isascii() and word[:1] == " " and not word[-1].isspace()]
        others = list(new.difference(plain))
        tokens = TokenRows.of(self(others, add_special_tokens=False))
        first = len(self._known_words)
        self._known_words = TokenRows.join([self._known_words, self._tokenize_joined(plain), tokens])
        self._number_by_word.update(zip([*plain, *others], itertools.count(first), strict=False))

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
