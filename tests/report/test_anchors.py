"""Anchors as the other anchors classify them, against loops over the definitions; and the table of suggestions."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax.report import anchors as anchors_lib
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


def test_as_many_labels_as_asked_for_and_no_checked_ones(anchors):
    order = [anchors.ids[index] for index in anchors_lib.ranked(anchors).index]
    assert anchors_lib.suggestions(anchors, 5).id.tolist() == order[:5]
    kept = dataclasses.replace(anchors, checked=(order[0], order[3], order[9]))
    assert anchors_lib.suggestions(kept, 5).id.tolist() == [order[index] for index in (1, 2, 4, 5, 6)]
    assert len(anchors_lib.suggestions(kept, 99)) == N - 3 and anchors_lib.suggestions(kept, 0).empty


def test_calibration_bins_by_the_probability_of_the_predicted_class():
    shares_NC = np.array([[1.0, 0.0], [0.6, 0.4], [0.45, 0.55], [0.68, 0.32], [0.0, 1.0]])
    measured = measures.Measures(("a", "b"), np.array([0, 1, 1, 0, 0]), np.array([0, 0, 1, 0, 1]), shares_NC)
    np.testing.assert_allclose(measured.calibration, [(0.55, 1.0, 1), (0.64, 0.5, 2), (1.0, 0.5, 2)])
    assert measured.calibration_error == pytest.approx((0.45 + 2 * 0.14 + 2 * 0.5) / 5)


def test_suggestions_are_not_formulas():
    y_N, shares_NC = np.array([1, 1, 0]), np.array([[0.1, 0.9], [0.2, 0.8], [0.1, 0.9]])
    given = {"labels": ("a", "b"), "names": ("=a", "b"), "ids": (3, 5, 8), "texts": ("=1+1", "x", "X ")}
    anchors = make(y_N, np.array([[1, 2], [0, 2], [0, 1]]), np.zeros((3, 2)), shares_NC, **given)
    assert anchors_lib.suggestions(anchors, 1).to_csv(index=False).splitlines() == [
        "id,text,label,suggested,checked,probability,neighbours,same_text",
        "8,X ,'=a,b,,0.136,2 of 2 differ,anchor 5: 'b'",
        "5,x,b,,,0.739,1 of 2 differ,anchor 8: '=a'",
    ]


def test_an_anchor_with_the_text_of_a_demonstration_and_another_label_is_listed():
    y_N, nothing = np.array([1, 1, 1]), np.zeros((3, 2))
    given = {"labels": ("a", "b"), "names": ("a", "b"), "ids": (3, 5, 8), "texts": ("u", "v", "w")}
    shown = ((0, "V", "a"), (1, "w", "b"), (2, "z", "a"))
    near_Nk = np.array([[1, 2], [0, 2], [0, 1]])
    anchors = make(y_N, near_Nk, nothing, nothing, predicted_N=y_N, demonstrations=shown, **given)
    table = anchors_lib.suggestions(anchors, 0)
    assert table[["id", "same_text"]].values.tolist() == [[5, "demonstration 0: 'a'"]]


def test_a_label_of_another_form_is_suggested_where_no_other_is():
    y_N = np.array([0, 0, 1, 2, 2])
    shares_NC = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3], [0.4, 0.1, 0.5], [0.4, 0.1, 0.5]])
    near_Nk = np.array([[1], [0], [3], [2], [3]])
    names = ("pay ", "log in", "Pay")
    anchors = make(y_N, near_Nk, np.zeros((5, 1)), shares_NC, labels=names, names=names)
    found = dict(anchors_lib.suggestions(anchors, 5)[["id", "suggested"]].values.tolist())
    assert found == {0: "", 1: "Pay", 2: "", 3: "pay ", 4: "pay "}
