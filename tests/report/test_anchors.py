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


@pytest.mark.parametrize("has_probabilities", [False, True])
def test_suspects_are_led_by_another_class(anchors, has_probabilities):
    found = anchors_lib.suspects(dataclasses.replace(anchors, has_probabilities=has_probabilities))
    expected = {}
    for anchor, label in enumerate(anchors.y_N):
        shares = [np.mean(anchors.y_N[anchors.near_Nk[anchor]] == each) for each in range(C)]
        kinds = [shares, anchors.shares_NC[anchor]] if has_probabilities else [shares]
        chosen_C = max(kinds, key=lambda share_C: max(share_C) - share_C[label])
        if (lead := max(chosen_C) - chosen_C[label]) > 0.5:
            expected[anchor] = (int(np.argmax(chosen_C)), pytest.approx(lead), chosen_C is shares)
    assert {row.Index: (row.suggested, row.lead, "nearest" in row.why) for row in found.itertuples()} == expected
    assert len({is_vote for *_, is_vote in expected.values()}) == 1 + has_probabilities
    assert found.lead.is_monotonic_decreasing


def test_calibration_bins_by_the_probability_of_the_predicted_class():
    shares_NC = np.array([[1.0, 0.0], [0.6, 0.4], [0.45, 0.55], [0.68, 0.32], [0.0, 1.0]])
    measured = measures.Measures(("a", "b"), np.array([0, 1, 1, 0, 0]), np.array([0, 0, 1, 0, 1]), shares_NC)
    np.testing.assert_allclose(measured.calibration, [(0.55, 1.0, 1), (0.64, 0.5, 2), (1.0, 0.5, 2)])
    assert measured.calibration_error == pytest.approx((0.45 + 2 * 0.14 + 2 * 0.5) / 5)


def test_suggestions_are_not_formulas():
    y_N, nothing = np.array([1, 1, 0]), np.zeros((3, 2))
    given = {"labels": ("a", "b"), "names": ("=a", "b"), "ids": (3, 5, 8), "texts": ("=1+1", "x", "X ")}
    anchors = make(y_N, np.array([[1, 2], [0, 2], [0, 1]]), nothing, nothing, predicted_N=y_N, **given)
    table = anchors_lib.suggestions(anchors).to_csv(index=False)
    assert table.splitlines() == [
        "id,text,label,suggested,why",
        "8,X ,'=a,b,\"2 of 2 nearest anchors; same text as anchor 5, 'b'\"",
        "5,x,b,,\"same text as anchor 8, '=a'\"",
    ]


def test_an_anchor_with_the_text_of_a_demonstration_and_another_label_is_listed():
    y_N, nothing = np.array([1, 1, 1]), np.zeros((3, 2))
    given = {"labels": ("a", "b"), "names": ("a", "b"), "ids": (3, 5, 8), "texts": ("u", "v", "w")}
    shown = ((0, "V", "a"), (1, "w", "b"), (2, "z", "a"))
    near_Nk = np.array([[1, 2], [0, 2], [0, 1]])
    table = anchors_lib.suggestions(
        make(y_N, near_Nk, nothing, nothing, predicted_N=y_N, demonstrations=shown, **given)
    )
    assert table.to_csv(index=False).splitlines()[1:] == ["5,v,b,,\"same text as demonstration 0, 'a'\""]
