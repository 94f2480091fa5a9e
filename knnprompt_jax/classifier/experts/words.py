"""Ridge regression on TF-IDF of words, pairs of words, and runs of two to five characters in words.

The numbers are those of scikit-learn's `TfidfVectorizer`, whose import takes longer than to fit a thousand texts. A
saved classifier keeps the regression: the terms of many rows take longer than their states.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from knnprompt_jax.classifier.experts import linear

_WORD = "\t"  # Begins words and pairs of words, and is part of no term: terms do not contain white space but blanks.
_MIN_RUN = 2
_MAX_RUN = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Terms:
    """A fitted regression.

    Attributes:
        terms: F words, pairs of words, and runs of characters; a tab begins words and pairs.
        table_FC: for each term the inverse document frequency, and the slope of each class; for no term, in one more
            row, 0 and the intercepts. float32 [F + 1, 1 + C].
    """

    terms: Sequence[str]
    table_FC: np.ndarray

    def __call__(self, readings: Any) -> np.ndarray:
        """Return the score of each class [Q, C] for the texts of `expert.Readings`."""
        return np.stack([self._score(text) for text in readings.texts])

    def _score(self, text: str) -> np.ndarray:
        indices_T, x_T = self._vocabulary.vector(text)
        return x_T @ self.table_FC[indices_T, 1:].astype(np.float64) + self.table_FC[-1, 1:]

    @functools.cached_property
    def _vocabulary(self) -> "Vocabulary":
        return Vocabulary(self.terms, self.table_FC[:-1, 0].astype(np.float64))


def fit(texts: Sequence[str], y_N: np.ndarray, num_classes: int, penalty: float) -> Terms:
    """Return the regression of the classes `y_N` of N texts, some of which have a word."""
    vocabulary = Vocabulary.of(texts)
    slope_FC, mean_C = linear.ridge_coefficients(vocabulary.matrix(texts), y_N, num_classes, penalty)
    table_FC = np.column_stack([np.append(vocabulary.idf_F, 0.0), np.vstack([slope_FC, mean_C])])
    return Terms(vocabulary.terms, np.ascontiguousarray(table_FC, np.float32))


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """F terms with the inverse document frequency of each."""

    terms: Sequence[str]
    idf_F: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """Return the terms of N texts."""
        counts: collections.Counter[str] = collections.Counter()
        for text in texts:
            counts.update(set(split(text)))
        terms = sorted(counts)
        counts_F = np.array([counts[term] for term in terms])
        return cls(terms, np.log((1 + len(texts)) / (1 + counts_F)) + 1)

    def matrix(self, texts: Sequence[str]) -> Any:
        """Return the vectors of texts as a sparse array [Q, F]."""
        from scipy import sparse  # Its import takes longer than the prediction of a text.

        vectors = [self.vector(text) for text in texts]
        starts = np.cumsum([0, *(len(indices_T) for indices_T, _ in vectors)])
        indices = np.concatenate([indices_T for indices_T, _ in vectors])
        values = np.concatenate([x_T for _, x_T in vectors])
        return sparse.csr_array((values, indices, starts), shape=(len(texts), len(self.terms)))

    def vector(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices [T] of a text's terms and their TF-IDF [T], with words and runs of the same norm."""
        counts = collections.Counter(term for term in split(text) if term in self._index)
        indices_T = np.array([self._index[term] for term in counts], int)
        x_T = (1 + np.log(list(counts.values()))) * self.idf_F[indices_T]
        is_word_T = np.array([term.startswith(_WORD) for term in counts], bool)
        for is_kind_T in (is_word_T, ~is_word_T):
            x_T[is_kind_T] /= np.linalg.norm(x_T[is_kind_T]) or 1.0
        return indices_T, x_T / (np.linalg.norm(x_T) or 1.0)

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        return {term: index for index, term in enumerate(self.terms)}


def split(text: str) -> list[str]:
    """Return the terms of a text with repetitions, a tab before words and pairs."""
    words = text.lower().split()
    terms = [_WORD + word for word in words]
    terms += [f"{_WORD}{first} {second}" for first, second in itertools.pairwise(words)]
    for word in words:
        padded = f" {word} "
        for length in range(_MIN_RUN, min(_MAX_RUN, len(padded)) + 1):
            terms += [padded[start : start + length] for start in range(len(padded) - length + 1)]
    return terms
