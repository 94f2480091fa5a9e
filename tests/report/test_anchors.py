"""Anchors as the other anchors classify them, against loops over the definitions."""

import numpy as np
import pytest

from knnprompt_jax.commands import anchors as anchors_lib
from knnprompt_jax.report import measures

N, K, C = 37, 5, 3


def make(y_N, near_Nk, distances_Nk, shares_NC, **fields):
    given = {
        "labels": tuple("abc"),
        "names": tuple("abc"),
        "ids": tuple(range(len(y_N))),
        "texts": tuple(f"text {number}" for number in range(len(y_N))),
        "hidden_NE": shares_NC,
        "unit": "nats",
        "predicted_N": shares_NC.argmax(1),
    }
    arrays = {"y_N": y_N, "near_Nk": near_Nk, "distances_Nk": distances_Nk, "shares_NC": shares_NC}
    return anchors_lib.ClassifiedAnchors(**given | arrays | fields)


@pytest.fixture(scope="module")
def anchors():
    """Random classes of points in a plane, with the K nearest others of each."""
    rng = np.random.default_rng(3)
    points_N2, y_N = rng.normal(size=(N, 2)), rng.integers(0, C, N)
    distances_NN = np.linalg.norm(points_N2[:, None] - points_N2[None], axis=-1)
    np.fill_diagonal(distances_NN, np.inf)
    near_NK = distances_NN.argsort(1)[:, :K]
    shares_NC = np.random.default_rng(5).dirichlet(np.ones(C), N)
    return make(y_N, near_NK, np.take_along_axis(distances_NN, near_NK, 1), shares_NC)


def test_labels_are_ranked_by_their_probability_if_classes_are_more_equally_common(anchors):
    found = anchors_lib.ranked(anchors)
    scale_C = np.sqrt([np.mean(anchors.y_N == each) for each in range(C)])
    for anchor, label in enumerate(anchors.y_N):
        balanced_C = anchors.shares_NC[anchor] / scale_C / sum(anchors.shares_NC[anchor] / scale_C)
        row = found.loc[anchor]
        assert row.probability == pytest.approx(balanced_C[label])
        assert row.differing == sum(anchors.y_N[other] != label for other in anchors.near_Nk[anchor])
        assert row.suggested == (balanced_C.argmax() if balanced_C.max() - balanced_C[label] > 0.5 else -1)
    assert found.probability.is_monotonic_increasing and len(found) == N
    assert {-1} < set(found.suggested)


def test_right_labels_of_a_rare_class_follow_a_wrong_label_of_a_common_one():
    """Each rare row has a lower probability than the mislabelled row, but only because its class is rare."""
    y_N = np.array([0] * 19 + [1] * 3)
    shares_NC = np.tile([0.97, 0.03], (22, 1))
    shares_NC[0] = [0.45, 0.55]
    shares_NC[19:] = [0.7, 0.3]
    nothing = np.zeros((22, 2), int)
    found = anchors_lib.ranked(make(y_N, nothing, nothing, shares_NC, labels=tuple("ab"), names=tuple("ab")))
    assert found.index[0] == 0 and shares_NC[0, 0] > shares_NC[19:, 1].max()


def test_calibration_bins_by_the_probability_of_the_predicted_class():
    shares_NC = np.array([[1.0, 0.0], [0.6, 0.4], [0.45, 0.55], [0.68, 0.32], [0.0, 1.0]])
    measured = measures.Measures(("a", "b"), np.array([0, 1, 1, 0, 0]), np.array([0, 0, 1, 0, 1]), shares_NC)
    np.testing.assert_allclose(measured.calibration, [(0.55, 1.0, 1), (0.64, 0.5, 2), (1.0, 0.5, 2)])
    assert measured.calibration_error == pytest.approx((0.45 + 2 * 0.14 + 2 * 0.5) / 5)
