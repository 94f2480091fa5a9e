"""Words without scikit-learn: against its vectorizer and regression."""

import numpy as np
import pytest
from sklearn import linear_model, pipeline, preprocessing
from sklearn.feature_extraction import text as text_lib

from knnprompt_jax.classifier.experts import expert, linear, words

TEXTS = ["A red  red\tcar", "Ünïcode İ ß ﬁne", "a", "", " \u2003 it\u00a0is\x1cso", "longest words, again and again"]
TEXTS += ["red a car"]
QUERIES = ["the red car car", "", "zzz", "A", "again\u3000İ ﬁn", *TEXTS]


def text_vectorizer():
    """Return scikit-learn's TF-IDF of words, pairs of words, and runs of characters in words, of norm 1."""
    words_of_text = text_lib.TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=r"\S+")
    runs = text_lib.TfidfVectorizer(sublinear_tf=True, ngram_range=(2, 5), analyzer="char_wb")
    return pipeline.make_pipeline(pipeline.make_union(words_of_text, runs), preprocessing.Normalizer())


@pytest.mark.parametrize("num_classes", [2, 3])
def test_scores_are_those_of_scikit_learn(num_classes):
    y_N = np.arange(len(TEXTS)) % num_classes
    vectorizer = text_vectorizer().fit(TEXTS)
    truth_NC = linear.centred_targets(y_N, num_classes)
    ridge = linear_model.Ridge(0.7, solver="sparse_cg", tol=1e-12)
    ridge.fit(vectorizer.transform(TEXTS), truth_NC, sample_weight=linear.class_weights(y_N))
    found_QC = words.fit(TEXTS, y_N, num_classes, 0.7)(expert.Readings(QUERIES, {}))
    np.testing.assert_allclose(found_QC, ridge.predict(vectorizer.transform(QUERIES)), atol=1e-6)


def test_terms_and_their_repetitions_are_those_of_scikit_learn():
    for text in QUERIES:
        kinds = [kind.build_analyzer() for _, kind in text_vectorizer()[0].transformer_list]
        expected = ["\t" + word for word in kinds[0](text)] + list(kinds[1](text))
        assert sorted(words.split(text)) == sorted(expected)
