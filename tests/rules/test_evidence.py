"""The nearest other anchors of each anchor."""

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.prompts import layout
from knnprompt_jax.rules import evidence
from knnprompt_jax.settings import stores
from knnprompt_jax.store import store as store_lib

TEXTS = ["same text"] * 5 + ["a dog", "a cat", "why not", "who is it", "it rains", "is it"]
LABELS = [0] * 5 + [0, 1, 1, 1, 0, 1]
TASK = kp.Task("talk", ("text",), "{text}\nIt is", ("0", "1"), ("said", "asked"))


@pytest.fixture(scope="module")
def fitted():
    return kp.KNNPrompting(kp.demo_model("tiny"), TASK, demo_shots=0).fit(TEXTS, LABELS).fitted_


@pytest.mark.parametrize("distance", ["kl", "reverse_kl", "kl_labels", "l2"])
def test_other_anchors_are_those_of_a_search_without_the_anchor(fitted, distance):
    states = fitted.device_states()
    label_ids = layout.label_ids(fitted.task, fitted.model.tokenize, "last")
    store = store_lib.build(stores.StoreOptions(), distance, fitted.model.head, states, LABELS, label_ids)
    for k in (3, 10):
        nearest = evidence.neighbours(store, k, states)
        for row in range(len(store)):
            found = store.search(states[row : row + 1], k + 1)
            others = np.asarray(found.indices_Qk[0]) != row
            np.testing.assert_allclose(nearest.distances_Qk[row], found.distances_Qk[0][others][:k], atol=1e-5)
            np.testing.assert_array_equal(nearest.classes_Qk[row], found.classes_Qk[0][others][:k])
            assert len({row, *nearest.indices_Qk[row].tolist()}) == k + 1


def test_more_neighbours_than_other_anchors_are_refused(fitted):
    with pytest.raises(kp.UserError, match="k=11: choose from 1 to 10, the number of other anchors"):
        fitted.others(11)
