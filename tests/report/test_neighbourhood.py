"""What neighbours say about anchors, against loops over the definition."""

import itertools

import numpy as np
import pytest

from knnprompt_jax.report import neighbourhood

N, K, C = 37, 5, 3


@pytest.fixture(scope="module")
def world() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classes [N], the K nearest others [N, K] and their distances, of points in a plane."""
    rng = np.random.default_rng(3)
    points_N2, y_N = rng.normal(size=(N, 2)), rng.integers(0, C, N)
    distances_NN = np.linalg.norm(points_N2[:, None] - points_N2[None], axis=-1)
    np.fill_diagonal(distances_NN, np.inf)
    near_NK = distances_NN.argsort(1)[:, :K]
    return y_N, near_NK, np.take_along_axis(distances_NN, near_NK, 1)


def test_votes_count_where_an_anchor_is_among_the_nearest(world):
    y_N, near_NK, _ = world
    right_N, wrong_N = neighbourhood.votes(y_N, near_NK)
    for anchor in range(N):
        voted = [other for other in range(N) if anchor in near_NK[other]]
        assert right_N[anchor] == sum(y_N[other] == y_N[anchor] for other in voted)
        assert wrong_N[anchor] == sum(y_N[other] != y_N[anchor] for other in voted)


@pytest.mark.parametrize("has_probabilities", [False, True])
def test_suspicion_is_the_lead_of_another_class(world, has_probabilities):
    y_N, near_NK, distances_NK = world
    p_NC = np.random.default_rng(5).dirichlet(np.ones(C), N)
    said = {"predicted_N": p_NC.argmax(1), "shares_NC": p_NC, "has_probabilities": has_probabilities}
    unused = {"names": tuple("abc"), "ids": tuple(range(N)), "texts": ("",) * N, "hidden_NE": p_NC, "k": K, "unit": ""}
    anchors = neighbourhood.ClassifiedAnchors(
        labels=tuple("abc"), y_N=y_N, near_Nk=near_NK, distances_Nk=distances_NK, **said, **unused
    )
    other_N, lead_N, by_neighbours_N = neighbourhood.suspicion(anchors)
    assert not has_probabilities or 0 < by_neighbours_N.sum() < N
    for anchor in range(N):
        shares = [sum(y_N[near_NK[anchor]] == label) / K for label in range(C)]
        leads = [max(shares) - shares[y_N[anchor]], p_NC[anchor].max() - p_NC[anchor, y_N[anchor]]]
        by_neighbours = not has_probabilities or leads[0] >= leads[1]
        assert by_neighbours_N[anchor] == by_neighbours
        assert lead_N[anchor] == pytest.approx(leads[not by_neighbours])
        said_C = shares if by_neighbours else p_NC[anchor]
        assert said_C[other_N[anchor]] == max(said_C)


def test_pairs_are_each_ones_nearest_once_and_in_order(world):
    _, near_NK, distances_NK = world
    found = neighbourhood.pairs(near_NK, distances_NK)
    expected = {tuple(sorted((one, int(near_NK[one, 0])))) for one in range(N)}
    assert {pair[:2] for pair in found} == expected
    assert len(found) == len(expected)
    assert all(first[2] <= second[2] for first, second in itertools.pairwise(found))


def test_calibration_bins_by_the_share_of_the_predicted_class():
    shares_NC = np.array([[1.0, 0.0], [0.6, 0.4], [0.45, 0.55], [0.68, 0.32], [0.0, 1.0]])
    bins = neighbourhood.calibration(np.array([0, 1, 1, 0, 0]), shares_NC, np.array([0, 0, 1, 0, 1]))
    found = [(one.confidence, one.accuracy, one.count) for one in bins]
    np.testing.assert_allclose(found, [(0.55, 1.0, 1), (0.64, 0.5, 2), (1.0, 0.5, 2)])
    assert neighbourhood.calibration_error(bins) == pytest.approx((0.45 + 2 * 0.14 + 2 * 0.5) / 5)
