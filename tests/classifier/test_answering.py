"""A classifier of which nothing is named: what it chooses, its probabilities, and what survives saving and changes."""

import pathlib

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import tasks
from knnprompt_jax.report import outcomes
from knnprompt_jax.tasks import splits

DATA = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def chosen(model, task, rows):
    return kp.AutoClassifier(model, task, demo_shots=(1, 0)).fit(rows[0][:67], rows[1][:67])


@pytest.fixture
def blend(model, task, rows):
    options = {"rule": "blend", "k": 5, "distance": "hidden", "penalty": 1.0, "demo_shots": 0}
    return kp.AutoClassifier(model, task, **options).fit(rows[0][:67], rows[1][:67])


def test_a_line_says_what_was_chosen(model, task, rows, chosen, capsys):
    again = kp.AutoClassifier(model, task, demo_shots=(1, 0)).fit(rows[0][:67], rows[1][:67])
    assert capsys.readouterr().err.splitlines()[-1] == chosen.choice_.line == again.choice_.line
    assert {each.rule.demo_shots for each in chosen.choice_.candidates} == {1, 0}
    assert len(chosen.demonstrations_) == 6 * chosen.rule_.demo_shots
    assert 0 < chosen.choice_.estimate.accuracy < 1 and chosen.choice_.num_anchors == 61


def test_it_is_better_than_as_published(chosen, model, task, rows):
    published = kp.KNNPrompting(model, task, demo_shots=None).fit(rows[0][:67], rows[1][:67])
    assert chosen.score(rows[0][67:], rows[1][67:]) > published.score(rows[0][67:], rows[1][67:])


def test_labels_are_those_of_the_highest_probability_or_missing(blend, rows):
    said = blend.answer(rows[0][67:])
    np.testing.assert_array_equal(said.labels, blend.classes_[said.probabilities.argmax(-1)])
    np.testing.assert_allclose(said.probabilities.sum(-1), 1)
    sure_Q = said.probabilities.max(-1) >= 0.6
    labels = blend.predict(rows[0][67:], abstain=0.6)
    assert 0 < sure_Q.sum() < len(sure_Q)
    assert [label is None for label in labels] == (~sure_Q).tolist()
    assert labels[sure_Q].tolist() == said.labels[sure_Q].tolist()


def test_a_named_setting_is_kept_and_leaves_out_rules_without_it(model, task, rows):
    fit = {"X": rows[0][:40], "y": rows[1][:40]}
    named = kp.AutoClassifier(model, task, k=2, demo_shots=0).fit(**fit)
    assert {each.rule.rule for each in named.choice_.candidates} == {"blend", "votes"}
    assert {each.rule.k for each in named.choice_.candidates} == {2}
    probes = kp.AutoClassifier(model, task, penalty=3.0, demo_shots=0).fit(**fit)
    assert {each.rule.rule for each in probes.choice_.candidates} == {"probe", "blend"}
    assert {each.rule.penalty for each in probes.choice_.candidates} == {3.0}


def test_what_was_chosen_survives_saving_and_is_fitted_again_after_changes(blend, rows, model, tmp_path):
    blend.set_params(class_prior={label: 1 + label for label in range(6)}).save(tmp_path / "saved")
    loaded = kp.AutoClassifier.load(tmp_path / "saved", model)
    assert loaded.choice_ == blend.choice_ and loaded.rule_ == blend.rule_
    np.testing.assert_allclose(loaded.predict_proba(rows[0][67:]), blend.predict_proba(rows[0][67:]), atol=1e-6)
    read = model.statistics.prompts
    loaded.remove(list(loaded.anchors_)[:3])
    assert model.statistics.prompts == read and loaded.rule_ == blend.rule_
    fewer = kp.AutoClassifier(**blend.get_params(deep=False))
    fewer.use_store(loaded.store_, (), list(loaded.anchors_.values()), states=loaded.states_, choice=loaded.choice_)
    np.testing.assert_allclose(loaded.predict_proba(rows[0][67:]), fewer.predict_proba(rows[0][67:]), atol=1e-6)
    assert not np.allclose(loaded.predict_proba(rows[0][67:]), blend.predict_proba(rows[0][67:]), atol=1e-4)
    before = loaded.predict_proba(rows[0][67:69])[:, rows[1][67]]
    loaded.partial_fit(rows[0][67:68] * 4, rows[1][67:68] * 4)
    assert loaded.predict_proba(rows[0][67:69])[0, rows[1][67]] > before[0]


def test_another_prior_makes_its_classes_likelier(blend, rows):
    plain_QC = blend.predict_proba(rows[0][67:])
    prior_C = np.array([6, 1, 1, 1, 1, 1]) / 11
    shifted_QC = blend.set_params(class_prior=prior_C).predict_proba(rows[0][67:])
    expected_QC = plain_QC * prior_C / (np.bincount(rows[1][:67], minlength=6) / 67)
    np.testing.assert_allclose(shifted_QC, expected_QC / expected_QC.sum(-1, keepdims=True), rtol=1e-6)
    assert (shifted_QC[:, 0] > plain_QC[:, 0]).all()


def test_each_anchor_by_the_others(blend):
    predicted_N, p_NC = blend.left_out()
    np.testing.assert_array_equal(predicted_N, p_NC.argmax(-1))
    assert np.mean(predicted_N == blend.store_.labels_N) < np.mean(
        blend.answer_states(blend.read(list(blend.anchors_.values()))).labels == blend.store_.labels_N
    )


@pytest.mark.skipif(not DATA.is_dir(), reason="the paper's tasks are not beside the project")
@pytest.mark.parametrize("name", ["agnews", "trec"])
def test_probabilities_say_how_often_they_are_right(model, name):
    """The expected calibration error of one neighbour is less than that of the plain vote, on every task."""
    task = tasks.get(name)
    train, test = (tasks.load_rows(task, split, data_dir=str(DATA)) for split in ("train", "dev_subsample"))
    drawn = splits.draw(train, task, shots=8, demo_shots=0, seed=1).anchors
    X, y = [row.fields for row in drawn], [row.label for row in drawn]
    queries, errors = test[:48], []
    y_Q = np.array([task.class_index(row.label) for row in queries])
    tuned = kp.AutoClassifier(model, task, demo_shots=0, rule="votes", k=1, weights="uniform", distance="forward")
    for classifier in (tuned, kp.KNNPrompting(model, task, k=1, demo_shots=0)):
        said = classifier.fit(X, y).answer([row.fields for row in queries])
        in_order = np.argsort(np.argsort(task.labels, kind="stable"), kind="stable")
        p_QC = said.probabilities[:, in_order]
        predicted_Q = np.array([task.class_index(str(label)) for label in said.labels])
        errors.append(outcomes.calibration_error(outcomes.calibration(y_Q, p_QC, predicted_Q)))
    assert errors[0] < errors[1]
