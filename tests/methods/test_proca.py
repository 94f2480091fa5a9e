"""Prototypical Calibration: the matching by brute force, the posterior by the Gaussians' densities."""

import itertools

import numpy as np
import pytest
from scipy import stats

from knnprompt_jax import errors
from knnprompt_jax.methods import proca

RESTARTS = 3


def make(synthetic, label_ids=None, seed=0):
    settings = proca.Settings(restarts=RESTARTS)
    return proca.PrototypicalCalibration(synthetic.head, label_ids or synthetic.label_ids, settings, seed)


@pytest.fixture(scope="module")
def classifier(synthetic):
    return make(synthetic, seed=1).fit(synthetic.anchors)


def best_matching(means_CC):
    weights = {
        order: sum(means_CC[order[label], label] for label in range(5)) for order in itertools.permutations(range(5))
    }
    return max(weights, key=weights.get), max(weights.values())


def test_clusters_are_matched_to_labels_with_the_most_weight(classifier):
    order, _ = best_matching(classifier.mixture.means_)
    np.testing.assert_array_equal(classifier.cluster_of_label, order)


def test_the_restart_with_the_heaviest_matching_is_kept(synthetic, classifier):
    log_p_NC = np.log(synthetic.p_labels(synthetic.anchors))
    seeds = np.random.default_rng(1).integers(2**31, size=RESTARTS)
    weights = [best_matching(proca._estimate(log_p_NC, 5, int(seed)).means_)[1] for seed in seeds]
    assert best_matching(classifier.mixture.means_)[1] == pytest.approx(max(weights), rel=1e-4)
    assert max(weights) - min(weights) > 0.01


def test_posterior_of_equally_weighted_gaussians(synthetic, classifier):
    log_p_QC, mixture = np.log(synthetic.p_labels(synthetic.queries)), classifier.mixture
    density_QC = np.stack(
        [
            stats.multivariate_normal(mixture.means_[cluster], mixture.covariances_[cluster]).pdf(log_p_QC)
            for cluster in classifier.cluster_of_label
        ],
        axis=-1,
    )
    want_QC = density_QC / density_QC.sum(-1, keepdims=True)
    np.testing.assert_allclose(classifier.predict_proba(synthetic.queries), want_QC, atol=1e-3)
    np.testing.assert_array_equal(classifier.predict(synthetic.queries), want_QC.argmax(-1))


def test_is_seeded(synthetic, classifier):
    again = make(synthetic, seed=1).fit(synthetic.anchors, np.zeros(103, int))
    np.testing.assert_array_equal(again.predict_proba(synthetic.queries), classifier.predict_proba(synthetic.queries))


def test_one_class_and_equal_rows(synthetic):
    one = make(synthetic, [7]).fit(synthetic.anchors)
    np.testing.assert_allclose(one.predict_proba(synthetic.queries), np.ones((13, 1)))
    equal = make(synthetic, [7, 199]).fit(synthetic.anchors[np.zeros(4, int)])
    assert np.isfinite(equal.predict_proba(synthetic.queries)).all()


@pytest.mark.parametrize(("rows", "label_ids", "least"), [(4, [1, 2, 3, 4, 5], 5), (1, [1], 2)])
def test_too_few_rows(synthetic, rows, label_ids, least):
    with pytest.raises(errors.UserError, match=f"{rows} anchors: at least {least} are needed"):
        make(synthetic, label_ids).fit(synthetic.anchors[:rows])
