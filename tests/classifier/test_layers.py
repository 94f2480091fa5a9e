"""A probe that reads the output of a block beside the state: it is kept through every change of the classifier."""

import dataclasses
import pickle

import numpy as np
import pytest

import knnprompt_jax as kp

OPTIONS = {"rule": "probe", "layer": 2, "demo_shots": 2}


@pytest.fixture(scope="module")
def fitted(model, task, rows):
    return kp.AutoClassifier(model, task, **OPTIONS).fit(rows[0][:67], rows[1][:67])


def test_the_probe_reads_the_layer_and_nothing_else_is_kept(fitted, model, task, rows, tmp_path):
    texts = rows[0][67:]
    assert set(fitted.states_.layers) == {2} and fitted.rule_.layer == 2
    without = kp.AutoClassifier(model, task, **{**OPTIONS, "layer": 0}).fit(rows[0][:67], rows[1][:67])
    assert np.abs(fitted.predict_proba(texts) - without.predict_proba(texts)).max() > 0.01
    for classifier, layers in ((fitted, ["layer_2_ND.npy"]), (without, [])):
        folder = tmp_path / str(len(layers))
        classifier.save(folder)
        assert sorted(path.name for path in (folder / "states").iterdir()) == ["hidden_NE.npy", *layers, "log_z_N.npy"]
        loaded = kp.load(folder, model)
        np.testing.assert_array_equal(loaded.predict_proba(texts), classifier.predict_proba(texts))
        np.testing.assert_array_equal(loaded.left_out()[1], classifier.left_out()[1])


def test_changes_keep_the_layer(fitted, model, task, rows, tmp_path):
    """Changed anchors predict like a fit to the same anchors; no anchor is read again."""
    fitted.save(tmp_path / "saved")
    changed, texts = kp.load(tmp_path / "saved", model), rows[0][67:]
    ids = list(changed.anchors_)
    changed.partial_fit(rows[0][67:80], rows[1][67:80]).relabel(ids[:1], [(rows[1][ids[0]] + 1) % 6]).remove(ids[1:3])
    anchors = list(changed.anchors_.values())
    changed.states_cache = None
    again = kp.AutoClassifier(model, task, **OPTIONS)
    again.fit_states(changed.read(anchors), changed.demonstrations_, anchors, changed.choice_)
    np.testing.assert_allclose(changed.predict_proba(texts), again.predict_proba(texts), atol=1e-4)
    restored = pickle.loads(pickle.dumps(changed))
    np.testing.assert_allclose(restored.predict_proba(texts), changed.predict_proba(texts), atol=1e-4)


def test_tuning_tries_the_layer_that_is_kept(fitted, model, rows):
    before = model.statistics.prompts
    candidates = fitted.tune(ks=(1, 3)).choice.candidates
    assert model.statistics.prompts == before
    assert {each.rule.layer for each in candidates if each.rule.rule != "votes"} == {2}
    used = fitted.use(type(fitted.choice_)(dataclasses.replace(fitted.rule_, layer=0)))
    assert used.layer == 0 and not used.states_.layers
    back = used.use(fitted.choice_)  # Its states are read again.
    np.testing.assert_allclose(back.predict_proba(rows[0][67:]), fitted.predict_proba(rows[0][67:]), atol=1e-4)


def test_the_block_after_three_quarters_is_the_default_and_votes_need_none(model, task, rows):
    chosen = kp.AutoClassifier(model, task, demo_shots=0).fit(rows[0][:67], rows[1][:67])
    tried = {each.rule.layer for each in chosen.choice_.candidates if each.rule.rule != "votes"}
    assert tried == {round(0.75 * model.config.num_layers)}
    votes = kp.AutoClassifier(model, task, demo_shots=0, rule="votes").fit(rows[0][:67], rows[1][:67])
    assert not votes.states_.layers and not kp.KNNPrompting(model, task).candidate_layers


def test_a_layer_that_the_model_lacks_is_refused(model, task, rows):
    message = f"layer=99: the model has {model.config.num_layers} blocks; choose from 0 to {model.config.num_layers}"
    with pytest.raises(kp.UserError, match=message):
        kp.AutoClassifier(model, task, layer=99).fit(*rows)
