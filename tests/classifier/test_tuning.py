"""What is tried on anchors that are there: the table, its baselines and its warnings."""

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import trials
from knnprompt_jax.rules import choosing, evidence
from knnprompt_jax.settings import stores
from knnprompt_jax.store import search
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.tasks.task import Example

TEXTS = ["same text"] * 5 + ["a dog", "a cat", "why not", "who is it", "it rains", "is it"]
LABELS = [0] * 5 + [0, 1, 1, 1, 0, 1]
TASK = kp.Task("talk", ("text",), "{text}\nIt is", ("0", "1"), ("said", "asked"))


@pytest.fixture(scope="module")
def whole(model):
    return kp.KNNPrompting(model, TASK, demo_shots=0).fit(TEXTS, LABELS)


@pytest.mark.parametrize("distance", ["kl", "reverse_kl", "kl_labels", "l2"])
def test_others_are_those_of_a_store_without_the_row(model, whole, distance):
    states = whole.device_states()
    store = store_lib.build(stores.StoreOptions(), distance, model.head, states, LABELS, whole.label_ids())
    for k in (3, 10):
        options = search.SearchOptions(k, distance)
        nearest = evidence.neighbours(store, options, states)
        for row in range(len(store)):
            all_ = store.search(states[row : row + 1], search.SearchOptions(k + 1, distance))
            others = np.asarray(all_.indices_Qk[0]) != row
            np.testing.assert_allclose(nearest.distances_Qk[row], all_.distances_Qk[0][others][:k], atol=1e-5)
            np.testing.assert_array_equal(nearest.labels_Qk[row], all_.labels_Qk[0][others][:k])
            assert len({row, *nearest.indices_Qk[row].tolist()}) == k + 1


def test_everything_is_tried_without_a_pass_and_the_best_can_be_used(fitted, model, rows):
    read = model.statistics.prompts
    tried = fitted.tune("accuracy", ks=(1, 3, 99))
    assert model.statistics.prompts == read
    candidates = [each.rule for each in tried.choice.candidates]
    assert {rule.k for rule in candidates if rule.rule == "votes"} == {1, 3}
    assert {rule.distance for rule in candidates if rule.rule == "votes"} == set(choosing.DISTANCES)
    assert {rule.rule for rule in candidates} == {"votes", "probe", "blend"}
    told = str(tried)
    assert "each of 55 anchors" in told and "± standard errors" in told and tried.choice.line in told
    used = kp.KNNPrompting(model, fitted.task, demo_shots=2).fit(rows[0][:67], rows[1][:67]).use(tried.choice)
    assert isinstance(used, kp.AutoClassifier) and used.rule_ == tried.choice.rule and used.choice_ == tried.choice
    again = kp.AutoClassifier(model, fitted.task, k=9, demo_shots=2).fit(rows[0][:67], rows[1][:67]).use(tried.choice)
    assert again.k == tried.choice.rule.named.get("k", "auto") and again.rule == "auto", "given settings are replaced"
    np.testing.assert_array_equal(again.predict(rows[0][67:]), used.predict(rows[0][67:]))


@pytest.mark.parametrize("first_draw", [range(1, 3000), range(2999)])
def test_draws_that_share_rows_are_compared_on_most_of_them(fitted, first_draw):
    """Whether the first or the last row is a demonstration of one draw only."""
    rows = [Example({"sentence": f"{number}"}, "0", number) for number in range(3000)]
    draws = {1: ((), [rows[number] for number in first_draw]), 0: ((), rows)}
    assert evidence.LIMIT - 2 <= len(trials.compared(fitted, draws)) <= evidence.LIMIT


def test_warnings(model):
    task = kp.Task("w", ("text",), "{text}:", ("a", "b", "c"), ("the same", "not the same", "other"))
    texts = ["x", "x", *"yzwvutsrqp"]
    classifier = kp.KNNPrompting(model, task, demo_shots=0).fit(texts, list("aaaaaaaaaaab"))
    told = str(classifier.tune(ks=(3,)))
    assert "class 'b' has too few anchors to be judged: 1, at least 2 are needed" in told
    assert "class 'c' has too few anchors to be judged: 0," in told
    assert "2 anchors have the same text as another" in told
    assert "no distance between label words was tried: task" in told
    assert "distance=partial" not in told and "class 'a'" not in told


def test_one_class_only(model):
    task = kp.Task("w", ("text",), "{text}:", ("a",), ("word",))
    classifier = kp.AutoClassifier(model, task, demo_shots=1).fit(list("abcdefghijklm"), ["a"] * 13)
    assert classifier.predict(["q"]).tolist() == ["a"]
    np.testing.assert_allclose(classifier.predict_proba(["q"]), [[1.0]])
    assert "all anchors have one class" in str(classifier.tune(ks=(1,)))


def test_what_cannot_be_tuned_is_refused(model, whole):
    with pytest.raises(kp.UserError, match=r"ks=\(11, 12\): choose from 1 to 10"):
        whole.tune(ks=(11, 12))
    with pytest.raises(kp.UserError, match="k=11: choose from 1 to 10, the number of other anchors"):
        whole.kneighbors(n_neighbors=11)
    few = kp.KNNPrompting(model, TASK, demo_shots=0).fit(TEXTS[4:], LABELS[4:])
    with pytest.raises(kp.UserError, match="7 anchors are too few to choose by: at least 10"):
        few.tune()
