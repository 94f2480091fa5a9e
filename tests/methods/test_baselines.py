"""Regression on TF-IDF features against a pipeline of scikit-learn, and baselines on sentence embeddings by hand."""

import dataclasses

import numpy as np
import pytest
from sklearn import linear_model

from knnprompt_jax.classifier.experts import pool_fitting


def bare_texts(rows):
    return [f"{row.fields['first']} {row.fields['second']}" for row in rows]


def classes(problem):
    return np.array([problem.task.class_index(row.label) for row in problem.train_rows])


def test_tfidf_reads_bare_texts_of_all_rows(problem, predict):
    """It trains on demonstrations and anchors, with both fields joined and without the template."""
    train = [dataclasses.replace(row, fields={"first": f"is{row.label}", "second": "x"}) for row in problem.train_rows]
    split = dataclasses.replace(problem.split, demonstrations=tuple(train[:3]), anchors=tuple(train[3:]))
    problem = dataclasses.replace(problem, split=split, evaluation=[*train[::-1], *problem.evaluation])
    prediction = predict("tfidf", problem)
    expected_QC = pool_fitting.predict_by_words(
        bare_texts(train), classes(problem), bare_texts(problem.evaluation), problem.task.num_classes
    )
    np.testing.assert_allclose(prediction.probabilities_QC, expected_QC)
    assert prediction.classes_Q[: len(train)].tolist() == classes(problem)[::-1].tolist()


def test_encoder_probe_is_logistic_regression_on_embeddings(problem, predict, embed):
    regression = linear_model.LogisticRegression(C=3.0, solver="newton-cg", tol=1e-9)
    regression.fit(embed(bare_texts(problem.train_rows)), classes(problem))
    want_QC = regression.predict_proba(embed(bare_texts(problem.evaluation)))
    prediction = predict("encoder_probe", problem, encoder="my_encoder", inverse_penalty=3.0)
    np.testing.assert_allclose(prediction.probabilities_QC, want_QC, atol=1e-4)
    np.testing.assert_array_equal(prediction.classes_Q, want_QC.argmax(-1))


@pytest.mark.parametrize("k", [1, 3, 100])
def test_encoder_knn_is_a_vote_by_cosine(problem, predict, embed, k):
    """100 exceeds the number of rows, so that all of them vote."""
    y = classes(problem)
    cosines_QN = embed(bare_texts(problem.evaluation)) @ embed(bare_texts(problem.train_rows)).T
    nearest_Qk = np.argsort(-cosines_QN, axis=-1)[:, :k]
    want_Q = [np.bincount(y[indices_k], minlength=problem.task.num_classes).argmax() for indices_k in nearest_Qk]
    prediction = predict("encoder_knn", problem, encoder="my_encoder", k=k)
    np.testing.assert_array_equal(prediction.classes_Q, want_Q)
