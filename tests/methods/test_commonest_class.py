"""The majority baseline on splits counted by hand."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax import errors


@pytest.fixture
def predicted(problem, predict):
    """What the method makes of a split with demonstrations and anchors of these labels, without a model."""

    def run(demonstrations, anchors):
        row = problem.split.anchors[0]
        rows = [
            tuple(dataclasses.replace(row, label=label) for label in labels) for labels in (demonstrations, anchors)
        ]
        split = dataclasses.replace(problem.split, demonstrations=rows[0], anchors=rows[1])
        return predict("commonest_class", dataclasses.replace(problem, split=split))

    return run


@pytest.mark.parametrize(
    ("demonstrations", "anchors", "shares", "want"),
    [
        ("012", "0112", [2 / 7, 3 / 7, 2 / 7], 1),
        ("2211", "0001", [3 / 8, 3 / 8, 2 / 8], 0),  # Neither demonstrations nor anchors alone say so.
        ("221", "1", [0, 1 / 2, 1 / 2], 1),  # Of equally common classes the lowest, not the first to appear.
        ("001", "1", [1 / 2, 1 / 2, 0], 0),
        ("2", "", [0, 0, 1], 2),
    ],
)
def test_commonest_of_demonstrations_and_anchors(predicted, demonstrations, anchors, shares, want):
    prediction = predicted(demonstrations, anchors)
    np.testing.assert_array_equal(prediction.classes_Q, [want] * 3)
    np.testing.assert_allclose(prediction.probabilities_QC, [shares] * 3, rtol=1e-12)


def test_note_tells_a_tie(predicted):
    assert predicted("012", "0112").note == "always 'b', the class of 3 of 7 train rows in the split"
    tied = predicted("012", "120").note
    assert tied.startswith("always 'a', the class of 2 of 6 ") and "; 3 classes are equally common" in tied


def test_a_drawn_split(problem, predict):
    """Of 4 shots a class, the third class has a single row: two classes are equally common."""
    prediction = predict("commonest_class", problem)
    np.testing.assert_allclose(prediction.probabilities_QC[0], [4 / 9, 4 / 9, 1 / 9])
    np.testing.assert_array_equal(prediction.classes_Q, [0, 0, 0])


def test_no_rows(predicted):
    with pytest.raises(errors.UserError, match="'commonest_class' does not apply: the split has no train rows"):
        predicted("", "")
