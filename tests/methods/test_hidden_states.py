"""The nearest class mean and the linear probe against their definitions in float64."""

import dataclasses

import numpy as np
import pytest
from sklearn import linear_model, pipeline, preprocessing

from knnprompt_jax.methods import method
from tests.methods.synthetic import NUM_QUERIES, normalised, predict

NAMES = ("hidden_centroids", "linear_probe", "linear_probe_log_p")


def hidden(synthetic, states):
    return np.asarray(states.hidden_NE, np.float64)


def log_p(synthetic, states):
    return synthetic.log_p(states)


def centroids(synthetic, y):
    h_NE = hidden(synthetic, synthetic.anchors)[: len(y)]
    h_QE = hidden(synthetic, synthetic.queries)
    scores_QC = np.zeros((len(h_QE), 5))
    for label in set(y.tolist()):
        scores_QC[:, label] = np.exp(-np.linalg.norm(h_QE - h_NE[y == label].mean(0), axis=-1))
    return normalised(scores_QC)


def probe(synthetic, y, inputs):
    """Return what scikit-learn's pipeline predicts from whole inputs, such as all V log-probabilities."""
    x_NF = inputs(synthetic, synthetic.anchors)[: len(y)]
    x_QF = inputs(synthetic, synthetic.queries)
    regression = linear_model.LogisticRegression(C=1000 / x_NF.shape[1], max_iter=5000, tol=1e-7)
    fitted = pipeline.make_pipeline(preprocessing.StandardScaler(), regression).fit(x_NF, y)
    p_QC = np.zeros((len(x_QF), 5))
    p_QC[:, np.unique(y)] = fitted.predict_proba(x_QF)
    return p_QC


REFERENCES = {
    "hidden_centroids": centroids,
    "linear_probe": lambda synthetic, y: probe(synthetic, y, hidden),
    "linear_probe_log_p": lambda synthetic, y: probe(synthetic, y, log_p),
}


@pytest.mark.parametrize("missing", [None, 3])
@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_those_of_the_definition(synthetic, name, missing):
    """Every class has anchors, or class `missing` has none, and so probability 0."""
    y = np.where(synthetic.y == missing, 0, synthetic.y)
    want_QC = REFERENCES[name](synthetic, y)
    prediction = predict(name, synthetic.context(y))
    np.testing.assert_allclose(prediction.probabilities_QC, want_QC, rtol=2e-4, atol=2e-3)
    np.testing.assert_array_equal(prediction.classes_Q, want_QC.argmax(-1))
    assert len(set(want_QC.argmax(-1))) > 2
    if missing is not None:
        assert (prediction.probabilities_QC[:, missing] == 0).all()


def test_equal_centroids_go_to_the_lower_class(synthetic):
    """Classes 2 and 1 have the same six states, those of class 2 first."""
    context = synthetic.context(np.repeat([2, 1], 6), "012")
    states = {**context.states, method.ANCHORS: synthetic.anchors.take_replicated(np.tile(np.arange(6), 2))}
    prediction = predict("hidden_centroids", dataclasses.replace(context, states=states))
    np.testing.assert_array_equal(prediction.classes_Q, np.ones(NUM_QUERIES))
