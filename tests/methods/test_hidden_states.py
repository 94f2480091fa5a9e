"""The layer by leaving one row out: by hand and against a loop."""

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.methods import hidden_states, registry
from knnprompt_jax.tasks import catalogue
from tests.methods import whole_texts

TREC = catalogue.get("trec")


def test_leave_one_out_against_a_loop():
    rng = np.random.default_rng(1)
    hidden_NE, y = rng.normal(size=(23, 3)), np.array([4, 1, 2] * 7 + [1, 0])
    right = 0
    for row in range(23):
        others = np.arange(23) != row
        means = {
            label: hidden_NE[others & (y == label)].mean(0) for label in np.unique(y) if (others & (y == label)).any()
        }
        right += min(means, key=lambda label: ((hidden_NE[row] - means[label]) ** 2).sum()) == y[row]
    assert hidden_states.leave_one_out(hidden_NE, y) == right / 23 > 0


def test_of_equally_good_layers_the_last():
    good_NE, bad_NE = np.array([[0.0], [1], [9], [8]]), np.zeros((4, 1))
    layers_NLE = np.stack([bad_NE, good_NE, good_NE, bad_NE], axis=1)
    assert hidden_states.choose_layer(layers_NLE, np.array([0, 0, 1, 1])) == (2, 1.0)


@pytest.mark.parametrize("name", ["hidden_centroids_layer", "linear_probe_layer"])
def test_predicts_from_the_layer_it_names(predict, name):
    problem = whole_texts.make_problem(TREC, 1, 3, whole_texts.queries(TREC, 3))
    result = predict(name, problem, whole_texts.model())
    assert result.classes_Q.shape == (3,) and result.note.startswith("layer ") and " of 2, " in result.note
    np.testing.assert_allclose(result.probabilities_QC.sum(-1), 1)
    assert result.prompts == len({TREC.render(row) for row in (*problem.split.anchors, *problem.evaluation)})


def test_needs_anchors():
    with pytest.raises(errors.UserError, match="'linear_probe_layer' does not apply: there are no anchors"):
        registry.select(["linear_probe_layer"], whole_texts.make_problem(TREC, 1, 0, whole_texts.queries(TREC, 3)))
