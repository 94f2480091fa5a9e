"""A probe that reads the output of a block beside the state: it is kept through every change of the classifier."""

import pickle
import zipfile

import numpy as np
import pytest

import knnprompt_jax as kp

OPTIONS = {"rule": "probe", "layer": 2, "demo_shots": 2}


@pytest.fixture(scope="module")
def fitted(model, task, rows):
    return kp.AutoClassifier(model, task, **OPTIONS).fit(rows[0][:67], rows[1][:67])


def test_the_probe_reads_the_layer_and_no_other_is_kept(fitted, model, task, rows, tmp_path):
    texts = rows[0][67:]
    assert set(fitted.fitted_.states.layers) == {2} and fitted.rule_.layer == 2
    without = kp.AutoClassifier(model, task, **{**OPTIONS, "layer": 0}).fit(rows[0][:67], rows[1][:67])
    assert np.abs(fitted.predict_proba(texts) - without.predict_proba(texts)).max() > 0.01
    for classifier, layers in ((fitted, ["layer_2_ND.npy"]), (without, [])):
        path = tmp_path / str(len(layers))
        classifier.save(path)
        with zipfile.ZipFile(path) as archive:
            assert archive.namelist() == ["classifier.json", "hidden_NE.npy", "log_z_N.npy", *layers]
        loaded = kp.load(path, model)
        np.testing.assert_array_equal(loaded.predict_proba(texts), classifier.predict_proba(texts))
        np.testing.assert_array_equal(loaded.left_out()[1], classifier.left_out()[1])


def test_added_rows_have_the_layer(fitted, model, rows, tmp_path):
    fitted.save(tmp_path / "saved")
    grown = kp.load(tmp_path / "saved", model).partial_fit(rows[0][67:80], rows[1][67:80])
    added = grown.fitted_.anchors[-13:]
    expected = grown.fitted_.read(added)
    np.testing.assert_allclose(grown.fitted_.states.layers[2][-13:], expected.layers[2], atol=1e-4)
    restored = pickle.loads(pickle.dumps(grown))
    np.testing.assert_allclose(restored.predict_proba(rows[0][80:]), grown.predict_proba(rows[0][80:]), atol=1e-4)


def test_the_block_after_three_quarters_is_the_default_and_votes_need_none(model, task, rows):
    chosen = kp.AutoClassifier(model, task, demo_shots=0).fit(rows[0][:67], rows[1][:67])
    tried = {each.rule.layer for each in chosen.choice_.candidates if each.rule.rule != "votes"}
    assert tried == {round(0.75 * model.config.num_layers)}
    votes = kp.AutoClassifier(model, task, demo_shots=0, rule="votes").fit(rows[0][:67], rows[1][:67])
    assert not votes.fitted_.states.layers


def test_a_layer_that_the_model_lacks_is_refused(model, task, rows):
    message = f"layer=99: the model has {model.config.num_layers} blocks; choose from 0 to {model.config.num_layers}"
    with pytest.raises(kp.UserError, match=message):
        kp.AutoClassifier(model, task, layer=99).fit(*rows)
