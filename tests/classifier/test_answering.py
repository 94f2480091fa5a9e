"""A classifier of which nothing is named: what it chooses, its probabilities, and what survives saving and changes."""

import numpy as np
import pandas as pd
import pytest

import knnprompt_jax as kp
from knnprompt_jax.rules import choosing


@pytest.fixture
def blend(model, task, rows):
    options = {"rule": "blend", "k": 5, "distance": "l2", "penalty": 1.0, "demo_shots": 0}
    return kp.AutoClassifier(model, task, **options).fit(rows[0][:67], rows[1][:67])


def test_every_number_of_demonstrations_is_a_candidate(model, task, rows):
    classifier = kp.AutoClassifier(model, task, demo_shots=(1, 0)).fit(rows[0][:67], rows[1][:67])
    assert {each.rule.demo_shots for each in classifier.choice_.candidates} == {1, 0}
    assert len(classifier.demonstrations_) == 6 * classifier.rule_.demo_shots
    assert 0 < classifier.choice_.estimate.accuracy < 1 and classifier.choice_.num_anchors == 61


def test_labels_are_those_of_the_highest_probability_or_missing(blend, rows):
    predictions = blend.answer(rows[0][67:])
    np.testing.assert_array_equal(predictions.labels, blend.classes_[predictions.probabilities.argmax(-1)])
    np.testing.assert_allclose(predictions.probabilities.sum(-1), 1)
    sure_Q = predictions.probabilities.max(-1) >= 0.6
    labels = blend.predict(rows[0][67:], abstain=0.6)
    assert 0 < sure_Q.sum() < len(sure_Q)
    assert [label is None for label in labels] == (~sure_Q).tolist()
    assert labels[sure_Q].tolist() == predictions.labels[sure_Q].tolist()
    assert blend.predict_proba([]).shape == (0, 6) and blend.predict([]).shape == (0,)
    with pytest.raises(kp.UserError, match="abstain=1.5: choose a probability"):
        blend.predict(rows[0][67:], abstain=1.5)


@pytest.mark.parametrize(
    ("given", "rules", "axis"), [({"k": 2}, "votes", "ks"), ({"penalty": 3.0}, "probe", "penalties")]
)
def test_a_given_setting_is_kept_and_leaves_out_rules_without_it(model, task, given, rules, axis):
    grid = choosing.Grid.of(kp.AutoClassifier(model, task, **given).options_)
    assert set(grid.rules) == {"blend", rules} and getattr(grid, axis) == tuple(given.values())


def test_what_was_chosen_survives_saving_and_is_fitted_again_after_changes(blend, rows, model, tmp_path):
    blend.set_params(class_prior={label: 1 + label for label in range(6)}).save(tmp_path / "saved")
    loaded = kp.load(tmp_path / "saved", model)
    assert loaded.choice_ == blend.choice_ and loaded.rule_ == blend.rule_
    np.testing.assert_allclose(loaded.predict_proba(rows[0][67:]), blend.predict_proba(rows[0][67:]), atol=1e-6)
    before = loaded.predict_proba(rows[0][67:69])[:, rows[1][67]]
    loaded.partial_fit(rows[0][67:68] * 4, rows[1][67:68] * 4)
    assert loaded.predict_proba(rows[0][67:69])[0, rows[1][67]] > before[0]


def test_a_prior_may_be_a_pandas_series_in_any_order_and_is_saved(blend, rows, model, tmp_path):
    shares = {label: 1 + label for label in range(6)}
    expected_QC = blend.set_params(class_prior=shares).predict_proba(rows[0][67:])
    series = pd.Series(shares).sort_values(ascending=False)
    np.testing.assert_array_equal(blend.set_params(class_prior=series).predict_proba(rows[0][67:]), expected_QC)
    keyed = {np.int64(label): share for label, share in shares.items()}
    blend.set_params(class_prior=keyed).save(tmp_path / "saved")
    np.testing.assert_allclose(kp.load(tmp_path / "saved", model).predict_proba(rows[0][67:]), expected_QC, atol=1e-6)
    with pytest.raises(kp.UserError, match="class_prior=.*: 'x' is not a number"):
        blend.set_params(class_prior=shares | {3: "x"}).predict(rows[0][67:])


def test_the_chosen_distance_decides_which_label_words_are_read(model, rows, tmp_path):
    task = kp.Task("w", ("text",), "{text}:", ("0", "1"), ("the same", "not the same"))  # They end in one token.
    options = {"rule": "votes", "k": 1, "distance": "kl", "demo_shots": 0}
    classifier = kp.AutoClassifier(model, task, **options).fit(rows[0][:20], ["0", "1"] * 10)
    classifier.set_params(distance="kl_labels").save(tmp_path / "mine")
    assert kp.load(tmp_path / "mine", model).rule_.distance == classifier.rule_.distance == "kl"
    with pytest.raises(kp.UserError, match="end in the same token"):
        classifier.fit(rows[0][:20], ["0", "1"] * 10)
    assert classifier.set_params(distance="l2").fit(rows[0][:20], ["0", "1"] * 10).rule_.distance == "l2"
    published = kp.KNNPrompting(model, task, demo_shots=0).fit(rows[0][:20], ["0", "1"] * 10)
    assert published.set_params(distance="l2").predict(rows[0][:3]).shape == (3,)
    with pytest.raises(kp.UserError, match="end in the same token"):
        published.set_params(distance="kl_labels").predict(rows[0][:3])


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("rule", ["votes", "blend"])
def test_k_may_exceed_the_anchors_that_the_choice_compares(model, rows, rule, weights):
    options = {"rule": rule, "k": 11, "weights": weights, "demo_shots": 0}
    classifier = kp.AutoClassifier(model, **options).fit(rows[0][:12], ["0", "1"] * 6)
    assert np.isfinite(classifier.predict_proba(rows[0][12:20])).all()


def test_options_of_the_choice_take_effect_from_the_next_fit(blend, rows, tmp_path):
    expected_QC = blend.predict_proba(rows[0][67:])
    changed = blend.set_params(distance="l2", k=1, rule="votes")  # Which uses no penalty.
    np.testing.assert_array_equal(changed.predict_proba(rows[0][67:]), expected_QC)
    changed.save(tmp_path / "mine")
    np.testing.assert_allclose(
        kp.load(tmp_path / "mine", blend.model).predict_proba(rows[0][67:]), expected_QC, atol=1e-6
    )
    with pytest.raises(kp.UserError, match="penalty=1.0: rule='votes' does not use it"):
        changed.fit(*rows)


def test_another_prior_makes_its_classes_likelier(blend, rows):
    plain_QC = blend.predict_proba(rows[0][67:])
    prior_C = np.array([6, 1, 1, 1, 1, 1]) / 11
    shifted_QC = blend.set_params(class_prior=prior_C).predict_proba(rows[0][67:])
    expected_QC = plain_QC * prior_C / (np.bincount(rows[1][:67], minlength=6) / 67)
    np.testing.assert_allclose(shifted_QC, expected_QC / expected_QC.sum(-1, keepdims=True), rtol=1e-6)
    assert (shifted_QC[:, 0] > plain_QC[:, 0]).all()
