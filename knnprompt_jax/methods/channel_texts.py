"""Labels, demonstrations and texts in the orders of a noisy channel: label first, or text first, as token families.

The layout is that of Min et al.'s released code, to the token, but that a blank stands before the query's label after a
single demonstration as well, and that labels may begin alike in any way.
"""

from collections.abc import Sequence

import numpy as np

from knnprompt_jax.methods import channel_templates
from knnprompt_jax.prompts import continuations, layout

Shown = tuple[str, int]
"""The text of a demonstration, and its class."""


class Writer:
    """Rows and labels as tokens. The texts of a family are, for each query, those of all classes."""

    def __init__(self, tokenize: layout.Tokenize, start: int, end: int, text_tokens: int):
        """Texts begin with `start` and end in `end`; of a text to classify only the first `text_tokens` are kept."""
        self._tokenize, self._text_tokens = tokenize, text_tokens
        self._start, self._end = np.array([start], np.int32), np.array([end], np.int32)
        self._special = len(tokenize([""])[0])
        self._known: dict[str, np.ndarray] = {}

    def channel(self, labels: Sequence[str], shown: Sequence[Shown], queries: Sequence[str]) -> continuations.Family:
        """label text label text … label → text end."""
        demonstrations = [
            (self._pieces([_after(place, labels[label])])[0], self._shown(f" {text}"))
            for place, (text, label) in enumerate(shown)
        ]
        contexts = self._pieces([_after(len(shown), label) for label in labels])
        texts = self._pieces([f" {query}" for query in queries], self._text_tokens)
        targets = [np.append(text, self._end) for text in texts]
        return continuations.Family(
            self._prefix(demonstrations), contexts * len(texts), [target for target in targets for _ in labels]
        )

    def direct(self, labels: Sequence[str], shown: Sequence[Shown], queries: Sequence[str]) -> continuations.Family:
        """text label text label … text, and what all labels begin with → the rest of the label, end."""
        words = self._pieces([f" {label}" for label in labels])
        demonstrations = [(self._shown(_after(place, text)), words[label]) for place, (text, label) in enumerate(shown)]
        texts = self._pieces([_after(len(shown), query) for query in queries], self._text_tokens)
        common = _common_length(words)
        return continuations.Family(
            self._prefix(demonstrations),
            [np.append(text, words[0][:common]) for text in texts for _ in words],
            [np.append(word[common:], self._end) for word in words] * len(texts),
        )

    def _prefix(self, demonstrations: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        return np.concatenate([self._start, *(piece for pieces in demonstrations for piece in pieces)])

    def _shown(self, text: str) -> np.ndarray:
        return self._pieces([text], self._text_tokens + channel_templates.MARGIN)[0]

    def _pieces(self, texts: Sequence[str], limit: int | None = None) -> list[np.ndarray]:
        """Tokens of pieces of text, tokenized apart and without special tokens; only the first `limit` are kept."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        for text, tokens in zip(new, self._tokenize(new), strict=True):
            self._known[text] = np.array(tokens[self._special :], np.int32)
        return [self._known[text][:limit] for text in texts]


def _after(number: int, text: str) -> str:
    """A text that follows so many demonstrations: a blank parts it from them."""
    return f" {text}" if number else text


def _common_length(sequences: Sequence[np.ndarray]) -> int:
    """How many tokens all the sequences begin with."""
    differ = (i for i, column in enumerate(zip(*sequences, strict=False)) if len(set(column)) > 1)
    return next(differ, min(map(len, sequences)))
