"""The linear probe against scikit-learn's own pipeline on the inputs in full, log-probabilities of all V tokens included."""

import numpy as np
import pytest
from sklearn import linear_model, pipeline, preprocessing

from knnprompt_jax.methods import linear_probe


def inputs(synthetic, states, representation):
    return (
        synthetic.log_p(states) if representation == "log_probabilities" else np.asarray(states.hidden_NE, np.float64)
    )


def make(synthetic, num_classes=5, **options):
    return linear_probe.LinearProbe(synthetic.head, num_classes, linear_probe.Settings(**options))


@pytest.mark.parametrize("representation", linear_probe.REPRESENTATIONS)
@pytest.mark.parametrize("inverse_penalty", [0.3, 1000.0])
@pytest.mark.parametrize("classes", [2, 5])
def test_is_logistic_regression_on_standardised_inputs(synthetic, representation, inverse_penalty, classes):
    rows = np.flatnonzero(synthetic.y < classes)
    inputs_NV = inputs(synthetic, synthetic.anchors[rows], representation)
    regression = linear_model.LogisticRegression(C=inverse_penalty / inputs_NV.shape[1], max_iter=5000, tol=1e-7)
    want = pipeline.make_pipeline(preprocessing.StandardScaler(), regression).fit(inputs_NV, synthetic.y[rows])
    classifier = make(synthetic, representation=representation, inverse_penalty=inverse_penalty)
    classifier.fit(synthetic.anchors[rows], synthetic.y[rows])
    p_QC = classifier.predict_proba(synthetic.queries)
    want_QC = want.predict_proba(inputs(synthetic, synthetic.queries, representation))
    np.testing.assert_allclose(p_QC[:, :classes], want_QC, atol=5e-4)
    np.testing.assert_array_equal(classifier.predict(synthetic.queries), want_QC.argmax(-1))
    assert (p_QC[:, classes:] == 0).all()  # Classes without anchors.


def test_standardised_log_probabilities_keep_their_inner_products(synthetic):
    log_p_NV = synthetic.log_p(synthetic.anchors)
    want_NV = (log_p_NV - log_p_NV.mean(0)) / log_p_NV.std(0) / np.sqrt(211)
    classifier = make(synthetic, representation="log_probabilities")
    classifier.fit(synthetic.anchors, synthetic.y)
    got_NE = classifier._standardise(classifier._inputs(synthetic.anchors))
    assert got_NE.shape == (103, 18)
    np.testing.assert_allclose(got_NE @ got_NE.T, want_NV @ want_NV.T, atol=1e-3 * (want_NV**2).sum(-1).max())


@pytest.mark.parametrize("representation", linear_probe.REPRESENTATIONS)
def test_one_class_and_one_anchor(synthetic, representation):
    classifier = make(synthetic, 3, representation=representation)
    classifier.fit(synthetic.anchors[:1], np.array([1]))
    np.testing.assert_array_equal(classifier.predict_proba(synthetic.queries), np.tile([0.0, 1.0, 0.0], (13, 1)))
