"""kNN Prompting against its definition, computed by brute force in float64."""

import dataclasses

import numpy as np
import pytest
from scipy import special

from knnprompt_jax.datastore.search import KNNOptions
from knnprompt_jax.methods import knn
from tests.datastore import worlds
from tests.methods.synthetic import predict

MARGIN = 1e-4  # Nats, or relative to the median distance if that is shorter; float32 cannot rank smaller differences.
METHODS = {"knn": "kl", "knn_reverse_kl": "reverse_kl", "knn_kl_labels": "kl_labels", "knn_l2": "l2"}


@pytest.fixture(scope="module")
def context(synthetic):
    return synthetic.context()


def distances(synthetic, name):
    """Return the divergences of distributions, or Euclidean distances of hidden states, [Q, N]."""
    h_QE = np.asarray(synthetic.queries.hidden_NE, np.float64)
    h_NE = np.asarray(synthetic.anchors.hidden_NE, np.float64)
    log_p_QV = synthetic.log_p(synthetic.queries)
    log_p_NV = synthetic.log_p(synthetic.anchors)
    return worlds.distances(name, h_QE, h_NE, log_p_QV, log_p_NV, synthetic.label_tokens)


def check_votes(synthetic, prediction, name, k):
    """Check the predictions of the queries whose neighbours float32 can rank."""
    distances_QN = distances(synthetic, name)
    margin = MARGIN * min(1.0, np.median(np.abs(distances_QN)))
    certain_Q = np.diff(np.sort(distances_QN)[:, : k + 1]).min(-1) > margin
    assert certain_Q.mean() > 0.4, "too few queries are certain for this to test anything"
    classes_Qk = synthetic.y[distances_QN.argsort(-1)[:, :k]].tolist()
    want_Q = np.array([min(range(5), key=lambda label: (-labels.count(label), label)) for labels in classes_Qk])
    assert len(set(want_Q)) > 2
    np.testing.assert_array_equal(prediction.classes_Q[certain_Q], want_Q[certain_Q])
    shares_QC = np.array([[labels.count(label) / k for label in range(5)] for labels in classes_Qk])
    np.testing.assert_allclose(prediction.probabilities_QC[certain_Q], shares_QC[certain_Q], rtol=1e-6)


@pytest.mark.parametrize("k", [8, 3])
@pytest.mark.parametrize("name", METHODS)
def test_the_k_nearest_anchors_vote(synthetic, context, name, k):
    check_votes(synthetic, predict(name, context, k=k), METHODS[name], k)


@pytest.mark.parametrize("kind", ["arithmetic", "geometric"])
def test_centroid_methods_predict_the_nearest_mean(synthetic, context, kind):
    log_p_QV = synthetic.log_p(synthetic.queries)
    log_p_NV = synthetic.log_p(synthetic.anchors)
    means = []
    for label in range(5):
        members_nV = log_p_NV[synthetic.y == label]
        if kind == "arithmetic":
            means.append(np.log(np.exp(members_nV).mean(0)))
        else:
            means.append(special.log_softmax(members_nV.mean(0)))
    want_Q = worlds.divergences("kl", log_p_QV, np.array(means)).argmin(-1)
    name = {"arithmetic": "knn_centroid", "geometric": "knn_centroid_geometric"}[kind]
    prediction = predict(name, context)
    np.testing.assert_array_equal(prediction.classes_Q, want_Q)
    np.testing.assert_array_equal(prediction.probabilities_QC, np.eye(5)[want_Q])
    assert len(set(want_Q)) > 2


@pytest.mark.parametrize(
    ("k", "shots", "demo_shots", "used"), [(3, 5, 4, 1), (3, 100, 2, 3), (7, 9, 4, 5), (500, 500, 0, 103)]
)
def test_the_published_k_is_at_most_the_anchors_per_class(context, k, shots, demo_shots, used):
    split = dataclasses.replace(context.problem.split, shots=shots, demo_shots=demo_shots)
    assert knn.released_k(k, dataclasses.replace(context.problem, split=split)) == used


def test_only_predict_limits_k(synthetic, context):
    """The grid over k votes with any k; the method uses at most 3 neighbours if there are 3 anchors per class."""
    split = dataclasses.replace(context.problem.split, shots=3)
    context = dataclasses.replace(context, problem=dataclasses.replace(context.problem, split=split))
    options = KNNOptions(k=8)
    check_votes(synthetic, knn.predict(context, options), "kl", 3)
    check_votes(synthetic, knn.vote(context, options, options.k), "kl", 8)
