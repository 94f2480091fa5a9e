"""Hidden Calibration against distances to the mean hidden states in NumPy."""

import numpy as np

from knnprompt_jax.methods import hidden_centroids


def reference(synthetic, y):
    """Distances [Q, C] to each class's mean state, for classes that have anchors."""
    h_NE, h_QE = (np.asarray(states.hidden_NE, np.float64) for states in (synthetic.anchors, synthetic.queries))
    centroids_CE = np.stack([h_NE[[i for i, label in enumerate(y) if label == c]].mean(0) for c in np.unique(y)])
    return np.sqrt(((h_QE[:, None] - centroids_CE) ** 2).sum(-1))


def test_nearest_centroid(synthetic):
    want_QC = reference(synthetic, synthetic.y)
    classifier = hidden_centroids.HiddenCentroids(5).fit(synthetic.anchors, synthetic.y)
    np.testing.assert_array_equal(classifier.predict(synthetic.queries), want_QC.argmin(-1))
    want_p_QC = np.exp(-want_QC) / np.exp(-want_QC).sum(-1, keepdims=True)
    np.testing.assert_allclose(classifier.predict_proba(synthetic.queries), want_p_QC, rtol=1e-9)


def test_class_without_anchors_is_never_predicted(synthetic):
    rows = np.flatnonzero(synthetic.y != 2)
    classifier = hidden_centroids.HiddenCentroids(5).fit(synthetic.anchors[rows], synthetic.y[rows])
    p_QC = classifier.predict_proba(synthetic.queries)
    assert (p_QC[:, 2] == 0).all() and 2 not in classifier.predict(synthetic.queries)
    np.testing.assert_allclose(p_QC.sum(-1), 1)


def test_equal_centroids_tie_and_the_lowest_class_wins(synthetic):
    twice = np.tile(np.arange(6), 2)
    classifier = hidden_centroids.HiddenCentroids(3).fit(synthetic.anchors[twice], np.repeat([2, 1], 6))
    np.testing.assert_array_equal(classifier.predict(synthetic.queries), np.ones(13))


def test_one_class_only(synthetic):
    classifier = hidden_centroids.HiddenCentroids(1).fit(synthetic.anchors, np.zeros(103, int))
    np.testing.assert_array_equal(classifier.predict_proba(synthetic.queries), np.ones((13, 1)))
