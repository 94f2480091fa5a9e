"""Ridge regression on TF-IDF of words, pairs of words, and runs of two to five characters in words.

scikit-learn fits it, and a saved classifier keeps it: the import of scikit-learn takes longer than the prediction of a
text, and the terms of many rows take longer than their states.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax.experts import linear

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

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """Return the score of each class [Q, C]."""
        return np.stack([self._score(text) for text in texts])

    def _score(self, text: str) -> np.ndarray:
        counts = collections.Counter(term for term in split(text) if term in self._index)
        indices_T = np.array([self._index[term] for term in counts], int)
        rows_TC = self.table_FC[indices_T].astype(np.float64)
        x_T = (1 + np.log(list(counts.values()))) * rows_TC[:, 0]
        is_word_T = self._is_word_F[indices_T]
        for is_kind_T in (is_word_T, ~is_word_T):
            x_T[is_kind_T] /= np.linalg.norm(x_T[is_kind_T]) or 1.0
        x_T /= np.linalg.norm(x_T) or 1.0
        return x_T @ rows_TC[:, 1:] + self.table_FC[-1, 1:]

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        return {term: index for index, term in enumerate(self.terms)}

    @functools.cached_property
    def _is_word_F(self) -> np.ndarray:
        return np.array([term.startswith(_WORD) for term in self.terms])


def fit(texts: Sequence[str], y_N: np.ndarray, num_classes: int, penalty: float) -> Terms:
    """Return the regression of the classes `y_N` of N texts, some of which have a word."""
    vectorizer = text_vectorizer().fit(texts)
    slope_FC, mean_C = linear.ridge_coefficients(vectorizer.transform(texts), y_N, num_classes, penalty)
    [words, runs] = [kind for _, kind in vectorizer[0].transformer_list]
    terms = [*(_WORD + word for word in words.get_feature_names_out()), *runs.get_feature_names_out()]
    idf_F = np.concatenate([words.idf_, runs.idf_, [0.0]])
    table_FC = np.column_stack([idf_F, np.vstack([slope_FC, mean_C])])
    return Terms(terms, np.ascontiguousarray(table_FC, np.float32))


def text_vectorizer() -> Any:
    """Return scikit-learn's TF-IDF of words, pairs of words, and runs of characters in words, of norm 1."""
    from sklearn import pipeline, preprocessing
    from sklearn.feature_extraction import text

    words = text.TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=r"\S+")
    runs = text.TfidfVectorizer(sublinear_tf=True, ngram_range=(_MIN_RUN, _MAX_RUN), analyzer="char_wb")
    return pipeline.make_pipeline(pipeline.make_union(words, runs), preprocessing.Normalizer())


def split(text: str) -> list[str]:
    """Return the terms of a text with repetitions: those of `text_vectorizer`, a tab before words and pairs."""
    words = text.lower().split()
    terms = [_WORD + word for word in words]
    terms += [f"{_WORD}{first} {second}" for first, second in itertools.pairwise(words)]
    for word in words:
        padded = f" {word} "
        for length in range(_MIN_RUN, min(_MAX_RUN, len(padded)) + 1):
            terms += [padded[start : start + length] for start in range(len(padded) - length + 1)]
    return terms
