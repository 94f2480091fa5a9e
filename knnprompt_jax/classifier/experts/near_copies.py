"""Near copies: texts that differ only in a signature, date, id, punctuation or order of fields, or share a passage.

A row that is predicted by its own copy says nothing about new texts. Two texts are near copies in three cases; the copy
of a near copy is a near copy, too:

- Their words are the same but for case, punctuation, invisible characters and the order of fields. Words with digits
  are left out beside four others.
- Their terms are similar. The terms of a text are these words, and its pairs of adjacent words that occur in other
  texts. Each has its inverse document frequency, log(U / n) for n of U texts. Similarity is Tanimoto's,
  a · b / (a · a + b · b − a · b). So rare words count, but hardly the name of one of a few annotators.
- They share a passage, such as a quote or the overlap of two parts of a document: terms that at most `_MAX_SHARING`
  texts have, which excludes most templates. Their a · b is a large part of the shorter text's a · a, and worth several
  terms that only two texts have.
"""

import collections
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from knnprompt_jax.tasks.task import Example

_MIN_SIMILARITY = 0.55
_MIN_SHARE = 0.4  # Of the squares of a text's terms, in a passage that it shares with a longer one.
_MIN_SHARED = 6.0  # Squares of terms in such a passage, relative to a term of two texts.
_MAX_SHARING = 10  # Texts with a term of such a passage; texts of a template share more common terms.
_MAX_TEXTS = 100  # With a term; more common terms say little, and would take most of the time.
_CHUNK = 256  # Texts that are compared with all others at a time.
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
# Symbols and characters of scripts without blanks (Thai, Lao, Japanese, Chinese) are words of their own.
_ALONE = "\u0e00-\u0eff\u2600-\u27bf\u3041-\u9fff\U0001f000-\U0001ffff"
_WORD = re.compile(f"[{_ALONE}]|[^\\s{_ALONE}]+")
_MARKS = ".,;:!?\u2026\u3001\u3002\uff0c\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb()[]{}<>-\u2013\u2014_*/\\|"  # At the ends of words.
# Other marks alone, such as :), are words.
_SENTENCE_MARKS = re.compile("[.,;:!?\u2026\u3001\u3002\uff0c\"'\u2013\u2014-]+")
_DIGIT = re.compile(r"\d")
_MIN_WORDS = 4  # Without digits; fewer do not say what a text is about.


def number_texts(rows: Sequence[Example]) -> np.ndarray:
    """Return a number [N] for the text of each row, ascending from 0; near copies have one number."""
    from scipy import sparse  # Its import takes longer than the prediction of a text.
    from scipy.sparse import csgraph

    numbers: dict[tuple[str, ...], int] = {}
    numbers_N = np.array([numbers.setdefault(_words(row), len(numbers)) for row in rows], int)
    num_texts = len(numbers)
    terms_UF = _terms(list(numbers))
    squares_U = terms_UF.power(2).sum(1)
    passages_UF = terms_UF[:, np.bincount(terms_UF.indices, minlength=terms_UF.shape[1]) <= _MAX_SHARING]
    min_shared = _MIN_SHARED * np.log(max(1.0, num_texts / 2)) ** 2
    near = [np.zeros((2, 0), int)]
    for pairs, products in _products(terms_UF):
        near.append(pairs[:, products > _MIN_SIMILARITY * (squares_U[pairs].sum(0) - products)])
    for pairs, products in _products(passages_UF):
        near.append(pairs[:, products > np.maximum(_MIN_SHARE * squares_U[pairs].min(0), min_shared)])
    edges = np.concatenate(near, 1)
    graph_UU = sparse.csr_array((np.ones(edges.shape[1]), edges), (num_texts, num_texts))
    return csgraph.connected_components(graph_UU, directed=False)[1][numbers_N]


def _words(row: Example) -> tuple[str, ...]:
    """Return the words of each field, joined, in any order of the fields; the whole texts if these have no word."""
    fields = []
    for text in row.fields.values():
        found = _WORD.findall(_INVISIBLE.sub("", unicodedata.normalize("NFKC", text).casefold()))
        fields.append([word.strip(_MARKS) or word for word in found if not _SENTENCE_MARKS.fullmatch(word)])
    plain = [[word for word in words if not _DIGIT.search(word)] for words in fields]
    kept = plain if sum(map(len, plain)) >= _MIN_WORDS else fields
    joined = tuple(sorted(map(" ".join, kept)))
    return joined if any(joined) else row.text_key


def _terms(texts: Sequence[tuple[str, ...]]) -> Any:
    """Return the inverse document frequencies of the terms of texts as a sparse array [U, F]."""
    from scipy import sparse

    texts_with = collections.defaultdict(list)
    for index, fields in enumerate(texts):
        words = [field.split() for field in fields]
        pairs = [" ".join(pair) for field in words for pair in itertools.pairwise(field)]
        for term in dict.fromkeys([*itertools.chain(*words), *pairs]):
            texts_with[term].append(index)
    kept = [
        found for term, found in texts_with.items() if len(found) <= _MAX_TEXTS and (len(found) > 1 or " " not in term)
    ]
    counts_F = np.array([len(found) for found in kept], int)
    rows = np.fromiter(itertools.chain.from_iterable(kept), int)
    columns = np.repeat(np.arange(len(kept)), counts_F)
    values = np.log(len(texts) / counts_F)[columns]
    return sparse.csr_array((values, (rows, columns)), (len(texts), len(kept)))


def _products(terms_UF: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield pairs [2, P] of texts with common terms, and the a · b of each pair [P]."""
    terms_FU = terms_UF.T.tocsr()
    for start in range(0, terms_UF.shape[0], _CHUNK):
        products = (terms_UF[start : start + _CHUNK] @ terms_FU).tocoo()
        yield np.stack([start + products.row, products.col]), products.data
