"""With the shipped model on real rows, neither the kind of store nor the place of its anchors changes a prediction."""

import numpy as np
import pytest

from knnprompt_jax import lm
from knnprompt_jax import states as states_lib
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import distances, kernel, search
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks import catalogue, sources, splits
from tests.store import worlds

ROWS = 64


@pytest.fixture(scope="module")
def read(shared):
    """The head, states and classes of 14 anchors per class, states of 64 test rows, the number of classes."""
    task, model = catalogue.get("trec"), lm.LanguageModel.from_pretrained("tiny")
    train, test = (
        sources.load_rows(task, split, data_dir=str(shared / "data")) for split in ("train", "dev_subsample")
    )
    drawn = splits.draw(train, task, shots=16, demo_shots=2, seed=1)
    prompts = layout.lay_out(
        task, drawn.demonstrations, [*drawn.anchors, *test[:ROWS]], model.tokenize, model.context, "left"
    )
    states, y = states_lib.read(model, prompts), np.array([task.class_index(each.label) for each in drawn.anchors])
    return model.head, states[: len(y)], y, states[len(y) :], task.num_classes


def log_probabilities(head, states):
    return worlds.log_softmax(np.asarray(states.hidden_NE, np.float64) @ np.asarray(head.rows_VE, np.float64).T)


@pytest.mark.parametrize("direction", distances.DIRECTIONS)
def test_factored_predictions_are_the_dense_ones(read, direction):
    """Wherever float64 tells the k-th anchor from the next by more than float32 mistakes."""
    head, anchors, y, queries, num_classes = read
    sorted_QN = np.sort(
        worlds.divergences(direction, log_probabilities(head, queries), log_probabilities(head, anchors))
    )
    places = [("dense", "device"), ("factored", "device"), ("factored", "host")]
    stores = [
        store_lib.build(store_lib.StoreOptions(kind, placement=place), direction, head, anchors, y, range(num_classes))
        for kind, place in places
    ]
    for k in (1, 3):
        certain_Q = sorted_QN[:, k] - sorted_QN[:, k - 1] > worlds.MARGIN
        assert certain_Q.mean() > 0.5
        nearest = [store.search(queries, search.SearchOptions(k, direction)) for store in stores]
        dense, *factored = [np.asarray(kernel.majority(each.labels_Qk, num_classes=num_classes)) for each in nearest]
        for predicted in factored:
            np.testing.assert_array_equal(predicted[certain_Q], dense[certain_Q])
        assert len(set(dense.tolist())) > 1
