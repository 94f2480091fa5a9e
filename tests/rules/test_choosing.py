"""Choosing from evidence that is made up: the rule that does best is found, and the estimate does not flatter."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.rules import choosing
from knnprompt_jax.rules import rule as rules
from knnprompt_jax.rules.evidence import Evidence
from knnprompt_jax.settings import classifiers


def evidence(count=71, classes=3, shift=0.0, width=11, demo_shots=0, seed=0, first=0):
    """Normal states around a mean for each class; two distances, of which one says nothing."""
    rng = np.random.default_rng(seed)
    y_N = np.arange(count) % classes
    hidden_NE = rng.normal(size=(count, width)) + shift * np.random.default_rng(99).normal(size=(classes, width))[y_N]
    told_NN = np.linalg.norm(hidden_NE[:, None] - hidden_NE, axis=-1)
    noise_NN = rng.random((count, count))
    distances = {"l2": told_NN, "kl": noise_NN, "reverse_kl": noise_NN.T, "kl_labels": noise_NN**2}
    return Evidence(demo_shots, first + np.arange(count), y_N, 0, hidden_NE.astype(np.float32), distances)


def test_the_number_of_demonstrations_and_the_distance_that_tell_most_are_chosen():
    sets = [evidence(demo_shots=2), evidence(shift=1.5, demo_shots=0)]
    choice = choosing.choose_by_evidence(sets, choosing.Grid(rules=("votes",)))
    assert (choice.rule.demo_shots, choice.rule.distance) == (0, "l2")
    assert choice.estimate.accuracy > 0.8 and choice.num_anchors == 71
    assert {each.rule.demo_shots for each in choice.candidates} == {0, 2}


def test_anchors_are_paired_by_id_in_any_order():
    """A little noise makes the preferred set worse, within its errors but beyond those of paired differences."""
    told = evidence(count=211, shift=0.6, seed=1)
    noise_NE = np.random.default_rng(4).normal(size=told.inputs_NF.shape)
    noisy = dataclasses.replace(told, inputs_NF=told.inputs_NF + 0.6 * noise_NE, demo_shots=2)
    shuffled = noisy.take(np.random.default_rng(3).permutation(211))
    for sets in ([noisy, told], [shuffled, told]):
        assert choosing.choose_by_evidence(sets, choosing.Grid(rules=("probe",))).rule.demo_shots == 0


def test_of_rules_as_good_the_preferred_is_taken_and_a_better_one_is_not_passed_over():
    as_good = choosing.choose_by_evidence([evidence(shift=1.0, seed=2)], choosing.Grid())
    assert as_good.rule.rule == "probe"
    ring = evidence(count=151, classes=2)
    angle_N = np.random.default_rng(1).random(151) * 2 * np.pi
    radius_N = 1.0 + 2 * ring.y_N
    hidden_NE = np.stack([radius_N * np.cos(angle_N), radius_N * np.sin(angle_N)], -1)
    near = {**ring.distances_NN, "l2": np.linalg.norm(hidden_NE[:, None] - hidden_NE, axis=-1)}
    ring = dataclasses.replace(ring, inputs_NF=hidden_NE, distances_NN=near)
    assert (
        choosing.choose_by_evidence([ring], choosing.Grid()).rule.rule != "probe"
    )  # No line parts a ring from its middle.


@pytest.mark.parametrize("metric", classifiers.METRICS)
def test_no_choice_is_worse_than_another_candidate_by_every_metric(metric):
    """Of unequal classes, what always says the most common one can be within two standard errors of the best."""
    for seed in (0, 3, 6):
        told = evidence(shift=0.4, seed=seed)
        y_N = np.where(np.arange(71) % 6 < 3, told.y_N, 0)
        choice = choosing.choose_by_evidence([dataclasses.replace(told, y_N=y_N)], choosing.Grid(), metric)
        [own] = [each.score for each in choice.candidates if each.rule == choice.rule]
        assert not any(own.is_dominated_by(each.score) for each in choice.candidates)
        assert f"macro F1 {100 * choice.estimate.macro_f1:.1f} %" in choice.line


@pytest.mark.parametrize("metric", classifiers.METRICS)
def test_where_nothing_is_to_be_learned_the_estimate_says_so(metric):
    scores = [choosing.choose_by_evidence([evidence(seed=seed)], choosing.Grid(), metric) for seed in range(3)]
    assert np.mean([each.estimate.accuracy for each in scores]) < 1 / 3 + 0.08
    best = [max(candidate.score.accuracy for candidate in each.candidates) for each in scores]
    assert np.mean(best) > 1 / 3 + 0.08  # Which is what the best of many candidates would have told.


def test_a_left_out_anchor_does_not_see_its_class_made_rarer():
    """With nothing to learn, many neighbours would otherwise always vote for another class than the anchor's own."""
    choice = choosing.choose_by_evidence(
        [evidence(count=59, classes=2)], choosing.Grid(("votes",), (31,), ("kl",), ("uniform",))
    )
    [candidate] = choice.candidates
    assert 0.3 < candidate.score.accuracy < 0.7


def test_scores_of_a_candidate():
    y_N = np.array([0, 0, 0, 1])
    p_NC = np.array([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.4, 0.6]])
    score = choosing.Outcome.of(p_NC, y_N).score
    assert (score.accuracy, score.macro_f1) == (0.75, pytest.approx((0.8 + 2 / 3) / 2))
    assert score.log_loss == pytest.approx(-np.log([0.9, 0.8, 0.2, 0.6]).mean())
    assert score.standard_error == pytest.approx(np.sqrt(4 / 6 * 2 / 6 / 4))


def test_too_few_anchors_are_told():
    choice = choosing.choose_by_evidence([evidence(count=7)], choosing.Grid())
    assert (choice.rule.rule, choice.rule.k, choice.rule.distance) == ("votes", 3, "kl")
    assert choice.estimate is None and "too few anchors to choose by" in choice.line
    one_class = dataclasses.replace(evidence(count=23), y_N=np.zeros(23, int))
    assert choosing.choose_by_evidence([one_class], choosing.Grid(rules=("probe",))).rule.rule == "probe"


def test_weights_that_cannot_be_chosen_are_refused():
    grid = choosing.Grid(weights=("distance",))
    with pytest.raises(errors.UserError, match="weights='distance': at least 10 anchors of two classes are needed"):
        choosing.choose_by_evidence([evidence(count=7)], grid)
    assert choosing.choose_by_evidence([evidence(count=23)], grid).rule.weights == "distance"


def test_a_class_without_anchors_is_never_predicted():
    told = evidence(shift=2.0)
    y_N = np.where(told.y_N == 1, 4, told.y_N)
    rule = rules.Rule("blend", 0, 3, "l2", vote_count=1.0, probe_count=2.0)
    fitted = rules.FittedRule.fit(rule, told.inputs_NF, y_N, 6)
    texts = y_N[:, None].repeat(3, 1), np.ones((71, 3)), told.inputs_NF
    p_NC = fitted.probabilities(*texts)
    assert p_NC.shape == (71, 6) and (p_NC[:, [1, 3, 5]] == 0).all()
    np.testing.assert_allclose(p_NC.sum(-1), 1)
    assert (p_NC.argmax(-1) == y_N).all()
    even_NC = fitted.probabilities(*texts, prior_C=np.eye(6)[4])
    np.testing.assert_allclose(even_NC, np.tile(np.eye(6)[4], (71, 1)), atol=1e-200)
