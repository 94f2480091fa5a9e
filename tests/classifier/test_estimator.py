"""The classifier against the definition, one prompt at a time; what it takes as X and y, and what it refuses."""

import numpy as np
import pytest
from scipy import special
from sklearn import exceptions

import knnprompt_jax as kp
from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.inference import states as states_lib
from tests import prompt_groups
from tests.datastore import worlds

ONE = kp.Task("one", ("text",), "{text}\nIt is", ("no", "yes"), ("bad", "good"))


def log_p(classifier, texts):
    """Log-probabilities [N, V] in float64 after whole prompts, each read from its first token to its last."""
    task, model = classifier.task_, classifier.model
    shown = "".join(task.render(example, example.label) + "\n" for example in classifier.demonstrations_)
    tokens = model.tokenize([shown + task.template.format(sentence=text) for text in texts])
    states = states_lib.read(model, prompt_groups.make(tokens))
    logits_NV = np.asarray(states.hidden_NE, np.float64) @ np.asarray(model.head.rows_VE, np.float64).T
    return special.log_softmax(logits_NV, axis=-1)


@pytest.fixture(scope="module")
def divergences(fitted, rows):
    """KL(test ‖ anchor) [Q, N] of the last 30 rows, and the anchors' row numbers."""
    shown = {example.row for example in fitted.demonstrations_}
    ids_N = np.array([row for row in range(67) if row not in shown])
    logp_QV, logk_NV = log_p(fitted, rows[0][67:]), log_p(fitted, [rows[0][row] for row in ids_N])
    return worlds.divergences("kl", logp_QV, logk_NV), ids_N


def test_neighbours_and_labels_are_those_of_the_definition(fitted, rows, divergences):
    kl_QN, ids_N = divergences
    distances_Qk, ids_Qk = fitted.kneighbors(rows[0][67:])
    nearest_Qk = np.argsort(kl_QN, -1, kind="stable")[:, :5]
    np.testing.assert_allclose(distances_Qk, np.take_along_axis(kl_QN, nearest_Qk, -1), atol=2e-5)
    np.testing.assert_array_equal(ids_Qk, ids_N[nearest_Qk])
    counts_QC = np.array([np.bincount(np.array(rows[1])[own], minlength=6) for own in ids_N[nearest_Qk]])
    np.testing.assert_array_equal(fitted.predict(rows[0][67:]), counts_QC.argmax(-1))
    np.testing.assert_allclose(fitted.predict_proba(rows[0][67:]), counts_QC / 5, rtol=1e-6)
    assert fitted.score(rows[0][67:], rows[1][67:]) == np.mean(counts_QC.argmax(-1) == rows[1][67:])


def test_demonstrations_are_drawn_from_each_class_and_are_no_anchors(fitted, model, task, rows):
    labels = sorted(example.label for example in fitted.demonstrations_)
    assert labels == sorted(2 * task.labels)
    assert not {example.row for example in fitted.demonstrations_} & set(fitted.anchors_)
    assert len(fitted.anchors_) + len(labels) == 67
    other = kp.KNNPrompting(model, task, random_state=1, demo_shots=2).fit(rows[0][:67], rows[1][:67])
    assert other.demonstrations_ != fitted.demonstrations_


@pytest.mark.parametrize(
    ("labels", "y", "classes"),
    [
        (("no", "yes"), ["yes", "no", "yes", "no", "yes"], ["no", "yes"]),
        (("10", "9"), [9, 10, 9, 9, 10], [9, 10]),
        (("1", "0"), np.array([1, 0, 1, 1, 0], np.int8), [0, 1]),
        (("True", "False"), [True, False, False, True, True], [False, True]),
    ],
)
def test_labels_keep_their_type(model, labels, y, classes):
    texts = ["red", "green", "blue", "hot", "cold"]
    task = kp.Task("typed", ("text",), "{text} is", labels, ("bad", "good"))
    classifier = kp.KNNPrompting(model, task, k=1, demo_shots=0).fit(texts, y)
    assert classifier.classes_.tolist() == classes and isinstance(classifier.classes_.tolist()[0], type(classes[0]))
    np.testing.assert_array_equal(classifier.predict(texts), y)
    np.testing.assert_array_equal(classifier.classes_[classifier.predict_proba(texts).argmax(-1)], y)


def test_the_prediction_has_the_largest_probability_where_votes_tie(model, rows):
    """Labels whose order in the task is not the sorted one."""
    labels = np.array(["9", "10", "2", "b", "a", "B"])
    classifier = kp.KNNPrompting(model, k=4, demo_shots=0).fit(rows[0][:67], labels[rows[1][:67]])
    p_QC = classifier.predict_proba(rows[0])
    assert (np.sort(p_QC, -1)[:, -1] - np.sort(p_QC, -1)[:, -2] < 1e-9).any(), "some votes tie"
    np.testing.assert_array_equal(classifier.classes_[p_QC.argmax(-1)], classifier.predict(rows[0]))
    np.testing.assert_allclose(p_QC.sum(-1), 1)


@pytest.mark.parametrize("distance", ["reverse_kl_labels", "l2"])
def test_k_and_distance_may_change_after_fit(fitted, model, task, rows, distance):
    X, y = rows
    options = {"k": 2, "distance": distance}
    changed = kp.KNNPrompting(model, task, demo_shots=2).fit(X[:67], y[:67]).set_params(**options)
    options["store_options"] = StoreOptions(kind="dense")
    expected = kp.KNNPrompting(model, task, demo_shots=2, **options).fit(X[:67], y[:67])
    np.testing.assert_allclose(changed.kneighbors(X[67:])[0], expected.kneighbors(X[67:])[0], rtol=1e-3, atol=2e-5)
    np.testing.assert_array_equal(changed.predict(X[67:]), expected.predict(X[67:]))
    with pytest.raises(kp.UserError, match="k=56: there are 55 anchors; choose k ≤ 55"):
        changed.set_params(k=56).predict(X[67:])


@pytest.mark.parametrize(
    ("kind", "options", "last", "message"),
    [
        ("KNNPrompting", {"k": 3, "demo_shots": 0}, "yes", "k=3: there are 2 anchors"),
        ("KNNPrompting", {"demo_shots": -1}, "yes", "demo_shots=-1"),
        ("KNNPrompting", {}, "perhaps", "row 1: unknown label 'perhaps'; choose from no, yes"),
        ("KNNPrompting", {}, 1.5, "row 1: .*1.5"),
        ("AutoClassifier", {"experts": ("words",)}, "yes", "experts=words: add one that reads prompts"),
        ("AutoClassifier", {"experts": ("knn", "encoder")}, "yes", "the expert and its model go together"),
        ("AutoClassifier", {"class_prior": "even"}, "yes", "class_prior='even': choose 'uniform'"),
        ("AutoClassifier", {"class_prior": {"no": 1}}, "yes", "share of 0 or more for each of no, yes"),
        ("AutoClassifier", {"class_prior": [-1, 2]}, "yes", "share of 0 or more for each of no, yes"),
        ("AutoClassifier", {"demo_shots": (0, 0.5)}, "yes", "demo_shots=.*a whole number"),
    ],
)
def test_bad_options_and_labels_are_refused_before_the_model_reads(model, kind, options, last, message):
    before = model.statistics.prompts
    given = ({"k": 1} if kind == "KNNPrompting" else {}) | options
    with pytest.raises(kp.UserError, match=message):
        getattr(kp, kind)(model, ONE, **given).fit(["a", "b"], ["no", last])
    assert model.statistics.prompts == before


def test_an_unfitted_classifier_and_one_without_a_model_say_so(model):
    for given in ((), ("smollm2",)):
        with pytest.raises(kp.UserError, match="model: a (NoneType|str); give a language model"):
            kp.AutoClassifier(*given).fit(["x", "z"], ["a", "b"])
    for call in ("predict", "kneighbors", "explain"):
        with pytest.raises(exceptions.NotFittedError):
            getattr(kp.KNNPrompting(model, ONE), call)(["a"])
