"""Leave-one-out against fitting anew without the row; the table, its suggestion and its warnings."""

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import leave_one_out, tuning
from knnprompt_jax.store import distances, search
from knnprompt_jax.store import store as store_lib

TEXTS = ["same text"] * 5 + ["a dog", "a cat", "why not", "who is it", "it rains", "is it"]
LABELS = [0] * 5 + [0, 1, 1, 1, 0, 1]
TASK = kp.Task("talk", ("text",), "{text}\nIt is", ("0", "1"), ("said", "asked"))


@pytest.fixture(scope="module")
def whole(model):
    return kp.KNNPrompting(model, TASK, k=3, demo_shots=0).fit(TEXTS, LABELS)


@pytest.mark.parametrize("distance", ["forward", "released", "partial", "hidden"])
def test_others_are_those_of_a_store_without_the_row(model, whole, distance):
    states = leave_one_out.states_of(whole.store_)
    store = store_lib.build(store_lib.StoreOptions(), distance, model.head, states, LABELS, whole.label_ids())
    for k in (1, 3, 10):
        options = search.SearchOptions(k, distance)
        nearest = leave_one_out.neighbours(store, options)
        for row in range(len(store)):
            alone = store.remove([row]).search(states[row : row + 1], options)
            np.testing.assert_allclose(nearest.distances_Qk[row], alone.distances_Qk[0], atol=1e-5)
            np.testing.assert_array_equal(nearest.labels_Qk[row], alone.labels_Qk[0])
            assert len({row, *nearest.indices_Qk[row].tolist()}) == k + 1


def test_accuracies_are_those_of_fitting_anew_without_the_row(model, whole):
    by_setting = {(choice.k, choice.distance): choice.accuracy for choice in whole.tune(ks=(1, 3)).choices}
    right = dict.fromkeys(by_setting, 0)
    for row in range(len(TEXTS)):
        rest = [other for other in range(len(TEXTS)) if other != row]
        classifier = kp.KNNPrompting(model, TASK, k=1, demo_shots=0, distance="released")  # Which keeps the most.
        classifier.fit([TEXTS[other] for other in rest], [LABELS[other] for other in rest])
        for k, distance in by_setting:
            classifier.set_params(k=k, distance=distance)
            right[k, distance] += classifier.predict([TEXTS[row]])[0] == LABELS[row]
    assert set(by_setting) == {(k, distance) for k in (1, 3) for distance in distances.DISTANCES}
    assert by_setting == {setting: pytest.approx(count / len(TEXTS)) for setting, count in right.items()}


@pytest.mark.parametrize("key_dtype", ["float32", "bfloat16"])
def test_states_come_back_from_the_store(fitted, key_dtype):
    states, head = fitted.read(list(fitted.anchors_.values())), fitted.lm.head
    options = store_lib.StoreOptions("factored", key_dtype)
    store = store_lib.build(options, "forward", head, states, fitted.store_.labels_N, range(6))
    back = leave_one_out.states_of(store)
    logits_NV = np.asarray(back.hidden_NE, np.float64) @ np.asarray(head.rows_VE, np.float64).T
    np.testing.assert_allclose(np.exp(logits_NV - np.asarray(back.log_z_N)[:, None]).sum(-1), 1, rtol=1e-4)
    np.testing.assert_allclose(back.hidden_NE, states.hidden_NE, atol=1e-4 if key_dtype == "float32" else 0.1)


def test_neighbours_without_texts_leave_each_anchor_out(whole):
    distances, ids = whole.kneighbors(n_neighbors=4)
    assert ids.shape == (11, 4) and not (ids == np.arange(11)[:, None]).any()
    np.testing.assert_allclose(distances[:5], 0, atol=1e-5)
    assert ids[4].tolist() == [0, 1, 2, 3]


def test_the_suggestion_is_the_best_and_of_equals_the_smallest_k():
    choices = [
        tuning.Choice(k, distance, accuracy)
        for distance, accuracies in {"hidden": (0.7, 0.5), "partial_released": (0.8, 0.8)}.items()
        for k, accuracy in zip((1, 3), accuracies, strict=True)
    ]
    found = tuning.Tuning(tuple(choices), 100, ())
    assert found.best == choices[2] and found.standard_error == pytest.approx(0.04)
    assert "k=1, distance=partial_released: 80.0 ± 4.0 %" in str(found)
    assert "label words, KL(anchor ‖ text)" in str(found) and "hidden state, L2" in str(found)


def test_warnings(model):
    task = kp.Task("w", ("text",), "{text}:", ("a", "b", "c"), ("the same", "not the same", "other"))
    classifier = kp.KNNPrompting(model, task, k=1, demo_shots=0).fit(["x", "x", "y", "z", "w"], list("aaaab"))
    told = str(classifier.tune(ks=(3,)))
    assert "class 'b' has 1 anchors, too few to be judged at k=3" in told and "class 'c' has 0 anchors" in told
    assert "2 anchors have the text of another" in told and "label words are not compared by: task" in told
    assert "label words," not in told and "class 'a'" not in told


def test_one_class_only(model):
    task = kp.Task("w", ("text",), "{text}:", ("a",), ("word",))
    classifier = kp.KNNPrompting(model, task, k=1, demo_shots=1).fit(["x", "y", "z"], ["a"] * 3)
    assert classifier.predict(["q"]).tolist() == ["a"] and classifier.predict_proba(["q"]).tolist() == [[1.0]]
    assert "there is one class only" in str(classifier.tune(ks=(1,)))


def test_what_cannot_be_tuned_is_refused(model, whole):
    with pytest.raises(kp.UserError, match=r"ks=\(11, 12\): choose from 1 to 10"):
        whole.tune(ks=(11, 12))
    with pytest.raises(kp.UserError, match="k=11: choose from 1 to 10, the number of other anchors"):
        whole.kneighbors(n_neighbors=11)
    options = store_lib.StoreOptions(kind="dense")
    dense = kp.KNNPrompting(model, TASK, demo_shots=0, store_options=options).fit(TEXTS, LABELS)
    with pytest.raises(kp.UserError, match="a dense store keeps no states.*kind='factored'"):
        dense.tune()
