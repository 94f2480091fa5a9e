"""Regression on TF-IDF features against a pipeline of scikit-learn, and baselines on sentence embeddings by hand."""

import dataclasses

import numpy as np
import pytest
from sklearn import feature_extraction, linear_model, pipeline

from knnprompt_jax import errors
from knnprompt_jax.methods import registry
from knnprompt_jax.models import encoders


@pytest.mark.parametrize(("ngrams", "inverse_penalty"), [(1, 0.3), (2, 20.0), (3, 0.3)])
def test_is_logistic_regression_on_tfidf(problem, predict, ngrams, inverse_penalty):
    """Of demonstrations and anchors, both fields joined, without template."""
    problem = dataclasses.replace(problem, evaluation=[*problem.split.anchors, *problem.evaluation])
    pool = problem.train_rows
    texts, queries = (
        [f"{row.fields['first']} {row.fields['second']}" for row in rows] for rows in (pool, problem.evaluation)
    )
    regression = pipeline.make_pipeline(
        feature_extraction.text.TfidfVectorizer(ngram_range=(1, ngrams), sublinear_tf=True),
        linear_model.LogisticRegression(C=inverse_penalty, solver="newton-cg", tol=1e-9),
    )
    want_QC = regression.fit(texts, [row.label for row in pool]).predict_proba(queries)
    prediction = predict("tfidf", problem, ngrams=ngrams, inverse_penalty=inverse_penalty)
    np.testing.assert_allclose(prediction.probabilities_QC, want_QC, atol=1e-4)
    np.testing.assert_array_equal(prediction.classes_Q, want_QC.argmax(-1))
    assert len(set(prediction.classes_Q)) > 1


def test_rows_without_words_are_refused(problem):
    rows = [dataclasses.replace(row, fields={"first": "a ?", "second": ""}) for row in problem.split.anchors]
    split = dataclasses.replace(problem.split, demonstrations=(), anchors=tuple(rows[:1]))
    with pytest.raises(errors.UserError, match="'tfidf' does not apply: no train row of the split has a word"):
        registry.select(["tfidf"], dataclasses.replace(problem, split=split))


@pytest.fixture
def embeddings(monkeypatch):
    """Embeddings of length 1 by text, drawn by the first letters of the text."""

    def embed(name, pooling, texts):
        assert (name, pooling) == ("my_encoder", "cls")
        rows = [np.random.default_rng([ord(letter) for letter in text[:12]]).normal(size=7) for text in texts]
        return np.stack([row / np.linalg.norm(row) for row in rows])

    monkeypatch.setattr(encoders, "embed", embed)
    monkeypatch.setattr(encoders, "describe", lambda name, pooling: None)
    return lambda rows: embed("my_encoder", "cls", [f"{row.fields['first']} {row.fields['second']}" for row in rows])


def test_encoder_probe_is_logistic_regression_on_embeddings(problem, predict, embeddings):
    y = [problem.task.class_index(row.label) for row in problem.train_rows]
    regression = linear_model.LogisticRegression(C=3.0, solver="newton-cg", tol=1e-9)
    want_QC = regression.fit(embeddings(problem.train_rows), y).predict_proba(embeddings(problem.evaluation))
    options = {"encoder": "my_encoder", "pooling": "cls", "inverse_penalty": 3.0}
    prediction = predict("encoder_probe", problem, **options)
    np.testing.assert_allclose(prediction.probabilities_QC, want_QC, atol=1e-4)


@pytest.mark.parametrize("k", [1, 3, 100])
def test_encoder_knn_is_a_vote_by_cosine(problem, predict, embeddings, k):
    y = np.array([problem.task.class_index(row.label) for row in problem.train_rows])
    cosines_QN = embeddings(problem.evaluation) @ embeddings(problem.train_rows).T
    nearest_Qk = np.argsort(-cosines_QN, axis=-1)[:, :k]
    want_Q = [np.bincount(y[row], minlength=problem.task.num_classes).argmax() for row in nearest_Qk]
    prediction = predict("encoder_knn", problem, encoder="my_encoder", pooling="cls", k=k)
    np.testing.assert_array_equal(prediction.classes_Q, want_Q)
