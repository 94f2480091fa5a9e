"""kNN Prompting against its definition, computed by brute force in float64."""

import collections

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.methods import knn_prompting

MARGIN = 1e-4  # Nats; float32 cannot be relied on to rank what is nearer in float64.


def make(decoded, **options):
    return knn_prompting.KNNPrompting(decoded.head, decoded.label_ids, **options)


def restrict(logp, decoded, representation):
    """The distribution that a representation compares."""
    if representation == "distribution":
        return logp
    partial = logp[:, decoded.label_ids]
    return partial - np.log(np.exp(partial).sum(-1, keepdims=True)) if representation == "partial" else partial


def distances_by_definition(decoded, representation, direction):
    """[Q, N]: divergences of distributions, or Euclidean lengths between hidden states."""
    if representation == "hidden":
        h_NE, h_QE = (np.asarray(states.hidden_NE, np.float64) for states in (decoded.anchors, decoded.queries))
        return np.sqrt(((h_QE[:, None] - h_NE) ** 2).sum(-1))
    logk_NV, logp_QV = (restrict(logp, decoded, representation) for logp in (decoded.logp_NV, decoded.logp_QV))
    first, second = (logp_QV[:, None], logk_NV) if direction == "forward" else (logk_NV, logp_QV[:, None])
    return (np.exp(first) * (first - second)).sum(-1)


def vote_by_definition(labels, tie_break):
    """The class of one query from its neighbours' classes, nearest first."""
    counts = collections.Counter(labels)
    best = [label for label in labels if counts[label] == max(counts.values())]
    return best[0] if tie_break == "nearest" else min(best)


@pytest.mark.parametrize("tie_break", knn_prompting.TIE_BREAKS)
@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("direction", knn_prompting.DIRECTIONS)
@pytest.mark.parametrize("representation", ["distribution", "partial", "partial_raw", "hidden"])
def test_predictions_are_those_of_the_definition(decoded, representation, direction, k, tie_break):
    method = make(decoded, k=k, direction=direction, representation=representation, tie_break=tie_break)
    method.fit(decoded.anchors, decoded.y_N)
    distances_QN = distances_by_definition(decoded, representation, direction)
    nearest_QN = distances_QN.argsort(-1)
    certain_Q = np.diff(np.sort(distances_QN)[:, : k + 1]).min(-1) > MARGIN
    assert certain_Q.mean() > 0.7, "too few queries are certain for this to test anything"
    neighbours = method.kneighbors(decoded.queries)
    np.testing.assert_allclose(neighbours.distances_Qk, np.sort(distances_QN)[:, :k], atol=MARGIN)
    np.testing.assert_array_equal(neighbours.indices_Qk[certain_Q], nearest_QN[certain_Q, :k])
    labels_Qk = decoded.y_N[nearest_QN[:, :k]].tolist()
    want_Q = np.array([vote_by_definition(labels, tie_break) for labels in labels_Qk])
    np.testing.assert_array_equal(method.predict(decoded.queries)[certain_Q], want_Q[certain_Q])
    shares_QC = np.array([[labels.count(label) / k for label in range(4)] for labels in labels_Qk])
    np.testing.assert_allclose(method.predict_proba(decoded.queries)[certain_Q], shares_QC[certain_Q], rtol=1e-6)
    right_Q = method.predict(decoded.queries) == decoded.y_Q
    assert 0 < method.score(decoded.queries, decoded.y_Q) == right_Q.mean() < 1


@pytest.mark.parametrize("representation", ["distribution", "hidden"])
def test_near_neighbours_weigh_more_in_probabilities_and_not_in_the_vote(decoded, representation):
    equal, weighted = (
        make(decoded, k=5, representation=representation, weights=weights) for weights in knn_prompting.WEIGHTS
    )
    for method in (equal, weighted):
        method.fit(decoded.anchors, decoded.y_N)
    distances_QN = distances_by_definition(decoded, representation, "forward")
    nearest_QN = distances_QN.argsort(-1)[:, :5]
    weights_QC = np.zeros((len(nearest_QN), 4))
    for query, nearest in enumerate(nearest_QN):
        for anchor in nearest:
            weights_QC[query, decoded.y_N[anchor]] += np.exp(-distances_QN[query, anchor])
    want_QC = weights_QC / weights_QC.sum(-1, keepdims=True)
    certain_Q = np.diff(np.sort(distances_QN)[:, :6]).min(-1) > MARGIN
    assert certain_Q.mean() > 0.7
    np.testing.assert_allclose(weighted.predict_proba(decoded.queries)[certain_Q], want_QC[certain_Q], atol=1e-4)
    assert (want_QC.argmax(-1) != equal.predict_proba(decoded.queries).argmax(-1)).any()
    np.testing.assert_array_equal(weighted.predict(decoded.queries), equal.predict(decoded.queries))


@pytest.mark.parametrize("direction", knn_prompting.DIRECTIONS)
@pytest.mark.parametrize("representation", ["distribution", "partial"])
@pytest.mark.parametrize("kind", ["arithmetic", "geometric"])
def test_the_nearest_centroid_decides(decoded, kind, representation, direction):
    """Classes 1 and 3 are all there is; k does not count."""
    y_N = np.where(decoded.y_N % 2, decoded.y_N, 1)
    method = make(decoded, k=8, direction=direction, representation=representation, centroid=kind)
    method.fit(decoded.anchors, y_N)
    logk_NV, logp_QV = (restrict(logp, decoded, representation) for logp in (decoded.logp_NV, decoded.logp_QV))
    members = [logk_NV[y_N == label] for label in (1, 3)]
    if kind == "arithmetic":
        centroids = np.stack([np.log(np.exp(rows).mean(0)) for rows in members])
    else:
        centroids = np.stack([rows.mean(0) for rows in members])
        centroids -= np.log(np.exp(centroids).sum(-1, keepdims=True))
    first, second = (logp_QV[:, None], centroids) if direction == "forward" else (centroids, logp_QV[:, None])
    want_Q = np.array([1, 3])[(np.exp(first) * (first - second)).sum(-1).argmin(-1)]
    np.testing.assert_array_equal(method.predict(decoded.queries), want_Q)
    assert len(set(want_Q)) == 2


def test_defaults_are_the_papers(decoded):
    method, explicit = make(decoded), make(decoded, k=3, direction="forward", representation="distribution")
    got, want = (one.fit(decoded.anchors, decoded.y_N).kneighbors(decoded.queries) for one in (method, explicit))
    np.testing.assert_array_equal(got.indices_Qk, want.indices_Qk)
    assert got.indices_Qk.shape == (len(decoded.queries), 3)
    assert method.classes_.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("k, anchor_shots, used", [(3, 1, 1), (3, 2, 2), (3, 3, 3), (3, 100, 3), (7, 5, 5), (1, 1, 1)])
def test_published_k(k, anchor_shots, used):
    assert knn_prompting.published_k(k, anchor_shots) == used


@pytest.mark.parametrize("k", [0, -2])
def test_no_neighbours_are_refused(k):
    with pytest.raises(errors.UserError, match=f"k={k}: at least 1"):
        knn_prompting.published_k(k, 5)


@pytest.mark.parametrize("k", [0, 42])
def test_more_neighbours_than_anchors_are_refused(decoded, k):
    method = make(decoded, k=k).fit(decoded.anchors, decoded.y_N)
    with pytest.raises(errors.UserError, match=f"k={k}: choose from 1 to 41"):
        method.predict(decoded.queries)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"direction": "backward"}, "direction='backward': choose from forward, released"),
        (
            {"representation": "logits"},
            "representation='logits': choose from distribution, partial, partial_raw, hidden",
        ),
        ({"tie_break": "random"}, "tie_break='random': choose from lowest, nearest"),
        ({"weights": "rank"}, "weights='rank': choose from uniform, distance"),
        ({"centroid": "median"}, "centroid='median': choose from none, arithmetic, geometric"),
        ({"centroid": "arithmetic", "representation": "hidden"}, "averages distributions: choose representation"),
        ({"centroid": "geometric", "representation": "partial_raw"}, "averages distributions: choose representation"),
    ],
)
def test_bad_options_are_refused(decoded, options, message):
    with pytest.raises(errors.UserError, match=message):
        make(decoded, **options)
