"""The majority baseline on splits counted by hand, and TF-IDF regression against a pipeline of scikit-learn."""

import dataclasses

import numpy as np
import pytest
from sklearn import feature_extraction, linear_model, pipeline

from knnprompt_jax import errors
from knnprompt_jax.methods import registry


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


def test_rows_without_a_word(problem):
    rows = tuple(dataclasses.replace(row, fields={"first": "a ?", "second": ""}) for row in problem.split.anchors)
    split = dataclasses.replace(problem.split, demonstrations=(), anchors=rows)
    with pytest.raises(errors.UserError, match="'tfidf' does not apply: no train row of the split has a word"):
        registry.select(["tfidf"], dataclasses.replace(problem, split=split))


@pytest.fixture
def predicted(problem, predict):
    """What the method makes of a split with demonstrations and anchors of these labels, without a model."""

    def run(demonstrations, anchors):
        row = problem.split.anchors[0]
        rows = [
            tuple(dataclasses.replace(row, label=label) for label in labels) for labels in (demonstrations, anchors)
        ]
        split = dataclasses.replace(problem.split, demonstrations=rows[0], anchors=rows[1])
        return predict("commonest_class", dataclasses.replace(problem, split=split))

    return run


@pytest.mark.parametrize(
    ("demonstrations", "anchors", "shares", "want"),
    [
        ("012", "0112", [2 / 7, 3 / 7, 2 / 7], 1),
        ("2211", "0001", [3 / 8, 3 / 8, 2 / 8], 0),  # Neither demonstrations nor anchors alone say so.
        ("001", "1", [1 / 2, 1 / 2, 0], 0),
    ],
)
def test_commonest_of_demonstrations_and_anchors(predicted, demonstrations, anchors, shares, want):
    prediction = predicted(demonstrations, anchors)
    np.testing.assert_array_equal(prediction.classes_Q, [want] * 3)
    np.testing.assert_allclose(prediction.probabilities_QC, [shares] * 3, rtol=1e-12)


def test_note_tells_a_tie(predicted):
    assert predicted("012", "0112").note == "always 'b', the class of 3 of 7 train rows in the split"
    tied = predicted("012", "120").note
    assert tied.startswith("always 'a', the class of 2 of 6 ") and "; 3 classes are equally common" in tied


def test_no_rows(predicted):
    with pytest.raises(errors.UserError, match="'commonest_class' does not apply: the split has no train rows"):
        predicted("", "")
