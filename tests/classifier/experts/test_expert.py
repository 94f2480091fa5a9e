"""Experts on states: what they read, and held-out scores that the held-out rows do not influence."""

import numpy as np
import pytest

from knnprompt_jax.classifier.experts import expert, pool, pool_fitting, views, words
from knnprompt_jax.common import parallel
from knnprompt_jax.inference import lm
from knnprompt_jax.models import head as head_lib

COUNT = 41
CLASSES = 3
WIDTH = 7
VOCABULARY = 101


@pytest.fixture(scope="module")
def resources():
    rows_VE = np.random.default_rng(0).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    return expert.Resources(head_lib.Head(rows_VE), parallel.make_mesh(1, 1), (5, 17, 3))


def make_readings(y_N, seed):
    rng = np.random.default_rng(seed)
    hidden_NE = (rng.normal(size=(len(y_N), WIDTH)) + 2 * np.eye(CLASSES, WIDTH)[y_N]).astype(np.float32)
    logits_NV = hidden_NE @ np.random.default_rng(0).normal(size=(VOCABULARY, WIDTH)).astype(np.float32).T
    log_z_N = np.log(np.exp(logits_NV.astype(np.float64)).sum(-1)).astype(np.float32)
    activations = {
        lm.Activation(2): rng.normal(size=(len(y_N), 5)).astype(np.float32),
        lm.Activation(3, is_mean=True): (hidden_NE + rng.normal(size=hidden_NE.shape)).astype(np.float32),
    }
    texts = [" ".join(rng.choice(["red", "hot", f"word{label}"], 5)) for label in y_N]
    return expert.Readings(texts, {4: lm.States(hidden_NE, log_z_N, False, activations)})


@pytest.fixture(scope="module")
def y_N():
    return np.random.default_rng(2).choice(CLASSES, COUNT, p=[0.5, 0.3, 0.2])


@pytest.mark.parametrize("name", ["labels", "means", "knn", "probe", "words"])
def test_held_out_scores_are_those_of_the_expert_without_the_fold(resources, y_N, name):
    readings = make_readings(y_N, 1)
    one = expert.KINDS[name](resources, 4)
    folds_N = views.deal_folds(y_N, np.arange(len(y_N)))
    scores_NC, setting = one.held_out(readings, y_N, folds_N, CLASSES)
    rest = np.flatnonzero(folds_N != 0)
    members = np.flatnonzero(folds_N == 0)
    refitted = one.fit(readings.take(rest), y_N[rest], CLASSES, setting)(readings.take(members))
    # Votes and regressions keep the shares of all rows; standardisation and terms are those of all texts.
    assert np.corrcoef(scores_NC[members].ravel(), refitted.ravel())[0, 1] > 0.95
    other_N = y_N.copy()
    other_N[members] = (y_N[members] + 1) % CLASSES
    if name in ("labels", "means"):  # The others choose a setting by these classes too.
        again_NC, _ = one.held_out(readings, other_N, folds_N, CLASSES)
        np.testing.assert_allclose(again_NC[members], scores_NC[members])


@pytest.mark.parametrize("name", ["means", "knn", "probe", "words"])
def test_experts_learn_the_classes(resources, y_N, name):
    """Those that read tokens also read the last one."""
    readings = make_readings(y_N, 1)
    experts = expert.KINDS[name].for_views([4], 6, resources)
    assert [one.token_block for one in experts] == ([0, 3] if name in ("means", "probe") else [0])
    fresh_N = np.arange(97) % CLASSES
    for one in experts:
        fitted = one.fit(readings, y_N, CLASSES, one.default_setting)
        assert np.mean(fitted(make_readings(fresh_N, 3)).argmax(-1) == fresh_N) > 0.55


def test_label_words_are_read_relative_to_their_mean_over_balanced_rows(resources, y_N):
    readings = make_readings(y_N, 1)
    scores_NC = expert.LabelWords(resources, 4).fit(readings, y_N, CLASSES, 0.0)(readings)
    states = readings.states[4]
    log_p_NC = states.hidden_NE @ resources.head.rows_VE[[5, 17, 3]].T - states.log_z_N[:, None]
    mean_C = np.mean([log_p_NC[y_N == label].mean(0) for label in range(CLASSES)], 0)
    np.testing.assert_allclose(scores_NC, log_p_NC - mean_C, atol=1e-4)


def test_votes_are_those_of_the_nearest_rows_after_one_more():
    shares_C = np.array([0.5, 0.3, 0.2])
    scores_QC = expert.vote_scores(np.array([[0, 0, 2], [1, 1, 1]]), shares_C)
    votes_QC = np.array([[2, 0, 1], [0, 3, 0]])
    np.testing.assert_allclose(scores_QC, np.log((votes_QC + shares_C) / 4 / shares_C))


def test_words_alone_are_ridge_regression_with_calibrated_probabilities(y_N):
    texts = [f"word{label} x{row % 5}" for row, label in enumerate(y_N)]
    p_NC = pool_fitting.predict_by_words(texts, y_N, texts, CLASSES + 1)
    assert (p_NC[:, CLASSES] == 0).all() and (p_NC.argmax(-1) == y_N).all()
    ratios_NC = np.log(p_NC[:, :CLASSES]) - np.log(np.bincount(y_N))
    ratios_NC -= ratios_NC.mean(-1, keepdims=True)
    correlations = []
    for penalty in expert.PENALTIES:
        scores_NC = words.fit(texts, y_N, CLASSES, penalty)(expert.Readings(texts, {}))
        scores_NC -= scores_NC.mean(-1, keepdims=True)
        correlations.append(np.corrcoef(scores_NC.ravel(), ratios_NC.ravel())[0, 1])
    assert max(correlations) > 0.9999


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_an_expert_without_a_weight_is_not_fitted(resources, y_N, weight):
    """Without any weight the classes' shares decide."""
    readings = make_readings(y_N, 1)
    weighed = pool.Member("probe", 4, 0, 1.0, 2.0, weight, 1.0, None)
    useless = pool.Member("words", None, 0, 1.0, 6.0, 0.0, 0.0, None)
    fitted = pool_fitting.Pool.fit(pool.Choice((useless, weighed)), readings, y_N, CLASSES, resources)
    assert fitted.terms is None
    scores_NC = expert.KINDS["probe"](resources, 4).fit(readings, y_N, CLASSES, 1.0)(readings)
    p_NC = np.bincount(y_N) * np.exp(weight * 2 * scores_NC)
    np.testing.assert_allclose(fitted.probabilities(readings), p_NC / p_NC.sum(-1, keepdims=True), atol=1e-12)
