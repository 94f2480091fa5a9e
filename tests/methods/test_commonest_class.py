"""The majority baseline on splits counted by hand."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.methods import method, registry


def predict(problem, demonstrations, anchors):
    """What the method makes of a split with demonstrations and anchors of these labels, without model and states."""
    row = problem.split.anchors[0]
    rows = [[dataclasses.replace(row, label=label) for label in labels] for labels in (demonstrations, anchors)]
    split = dataclasses.replace(problem.split, demonstrations=tuple(rows[0]), anchors=tuple(rows[1]))
    chosen = dataclasses.replace(problem, split=split)
    (commonest,), _ = registry.select(["commonest_class"], chosen)
    return commonest.run(method.Context(chosen, method.UNLOADED, {}))


@pytest.mark.parametrize(
    ("demonstrations", "anchors", "shares", "predicted"),
    [
        ("012", "0112", [2 / 7, 3 / 7, 2 / 7], 1),
        ("2211", "0001", [3 / 8, 3 / 8, 2 / 8], 0),  # Neither demonstrations nor anchors alone say so.
        ("221", "1", [0, 1 / 2, 1 / 2], 1),  # Of equally common classes the lowest, not the first to appear.
        ("001", "1", [1 / 2, 1 / 2, 0], 0),
        ("2", "", [0, 0, 1], 2),
    ],
)
def test_commonest_of_demonstrations_and_anchors(problem, demonstrations, anchors, shares, predicted):
    prediction = predict(problem, demonstrations, anchors)
    np.testing.assert_array_equal(prediction.classes_Q, [predicted] * 3)
    np.testing.assert_allclose(prediction.probabilities_QC, [shares] * 3, rtol=1e-12)


def test_note_tells_a_tie(problem):
    assert predict(problem, "012", "0112").note == "always 'b', the class of 3 of 7 train rows in the split"
    tied = predict(problem, "012", "120").note
    assert tied.startswith("always 'a', the class of 2 of 6 ") and "; 3 classes are equally common" in tied


def test_a_drawn_split(problem):
    """Of 4 shots a class, the third class has a single row: two classes are equally common."""
    context = method.Context(problem, method.UNLOADED, {})
    prediction = registry.get("commonest_class").run(context)
    np.testing.assert_allclose(prediction.probabilities_QC[0], [4 / 9, 4 / 9, 1 / 9])
    np.testing.assert_array_equal(prediction.classes_Q, [0, 0, 0])


def test_no_rows(problem):
    with pytest.raises(errors.UserError, match="'commonest_class' does not apply: the split has no train rows"):
        predict(problem, "", "")
