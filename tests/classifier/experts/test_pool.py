"""The pool: few rows keep the prior, many rows choose, and the estimate is right where there is no signal."""

import numpy as np
import pytest

from knnprompt_jax.classifier.experts import pool, views

CLASSES = 3
SHARES = np.array([0.5, 0.3, 0.2])


def world(count, strengths, seed=0):
    """Return classes, and scores of experts that know them to these degrees."""
    rng = np.random.default_rng(seed)
    y_N = np.concatenate([np.arange(CLASSES), rng.choice(CLASSES, count - CLASSES, p=SHARES)])
    scores_JNC = rng.normal(size=(len(strengths), count, CLASSES))
    scores_JNC += np.array(strengths)[:, None, None] * np.eye(CLASSES)[y_N]
    return y_N, scores_JNC


def choose(y_N, scores_JNC, names=("labels", "probe")):
    members = [pool.Member(name, 0, 0, 0.0) for name in names]
    rows_N = np.arange(len(y_N))
    weighed = pool.weigh_experts(members, scores_JNC, y_N, views.deal_folds(y_N, rows_N), ())
    return pool.assess(*weighed, y_N, rows_N)


def test_few_rows_keep_the_prior_and_many_rows_find_the_expert_that_knows():
    few, many = (choose(*world(count, (0.0, 2.0))) for count in (11, 2003))
    uninformed = choose(np.array([0, 1, 2]), np.zeros((2, 3, 3)))
    assert many.members[0].weight < few.members[0].weight < uninformed.members[0].weight
    assert uninformed.members[1].weight < few.members[1].weight < many.members[1].weight
    assert many.members[0].share < 0.05 < 0.95 < many.members[1].share


@pytest.mark.parametrize("count", [211, 997])
def test_probabilities_are_calibrated(count):
    y_N, scores_JNC = world(count, (1.0, 2.0))
    choice = choose(y_N, scores_JNC)
    fresh_N, fresh_JNC = world(5003, (1.0, 2.0), seed=1)
    counts_J = np.array([member.weight * member.factor for member in choice.members])
    p_NC = pool.probabilities(np.tensordot(counts_J, fresh_JNC, 1), SHARES)
    is_right_N = p_NC.argmax(-1) == fresh_N
    assert p_NC.max(-1).mean() == pytest.approx(is_right_N.mean(), abs=0.04)
    assert choice.estimate.low < is_right_N.mean() < choice.estimate.high


def test_two_copies_of_an_expert_count_as_one():
    y_N, scores_JNC = world(2003, (2.0,))
    alone = choose(y_N, scores_JNC, ("probe",))
    twice = choose(y_N, np.repeat(scores_JNC, 2, axis=0), ("probe", "knn"))
    totals = [sum(member.weight * member.factor for member in choice.members) for choice in (alone, twice)]
    assert totals[1] == pytest.approx(totals[0], rel=0.05)


def test_the_estimate_without_signal_is_the_most_common_class():
    """Leave-one-out of a few rows would promise less than chance."""
    y_N, scores_JNC = world(103, (0.0, 0.0))
    estimate = choose(y_N, scores_JNC).estimate
    assert estimate.low < np.bincount(y_N).max() / 103 < estimate.high


def test_scores_that_contradict_the_classes_have_no_weight():
    y_N, scores_JNC = world(2003, (-2.0, 2.0))
    assert choose(y_N, scores_JNC).members[0].share < 0.01
    none_helps = choose(*world(211, (-2.0, -2.0)))
    assert not none_helps.used and "every prediction will be the most common class" in str(none_helps)


def test_an_estimate_needs_rows_and_rows_of_each_class():
    enough = pool.MIN_ROWS
    assert choose(*world(enough - 1, (1.0, 1.0))).estimate is None
    choice = choose(*world(enough, (1.0, 1.0)))
    assert choice.estimate is not None and str(choice).count(choice.line) == 1
    assert "too few for a forecast of accuracy" in choose(*world(7, (1.0, 1.0))).line
    y_N = np.arange(60) % 20
    assert choose(y_N, np.eye(20)[y_N][None], ("probe",)).estimate is None, "three rows of a class"
    y_N = np.append(np.arange(60) % 2, 2)
    with np.errstate(divide="raise", invalid="raise"):
        choice = choose(y_N, np.eye(3)[y_N][None], ("probe",))
    assert all(0 < p <= 1 for p in choice.held_out_p) and choice.estimate.accuracy > 0.6, "a class of one row"


def test_experts_without_scores_keep_their_priors():
    y_N = np.array([0, 1])
    [member] = choose(y_N, np.zeros((1, 2, 2)), ("probe",)).members
    assert member.accuracy is None and member.factor == pytest.approx(pool._FACTORS["probe"], rel=0.01)
    assert member.weight == pytest.approx(pool._TOTAL)
    choice = choose(y_N, np.zeros((2, 2, 2)))
    assert [member.share for member in choice.members] == pytest.approx([6 / 7, 1 / 7])


def test_an_expert_alone_finds_common_classes_more_probable():
    """Otherwise an expert that knows little would seem worse than the most common class."""
    y_N, scores_JNC = world(997, (0.1, 0.1))
    members = choose(y_N, scores_JNC).members
    assert all(member.accuracy >= np.bincount(y_N).max() / 997 - 0.01 for member in members)
