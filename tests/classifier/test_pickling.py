"""Classifiers in pickles, which name the model and hold none of its weights."""

import dataclasses
import multiprocessing
import pickle
import weakref

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.inference.lm import language_model


def test_a_fitted_classifier_comes_back_as_it_was(fitted, rows, monkeypatch):
    monkeypatch.setattr(kp.LanguageModel, "from_pretrained", None)  # The model is there.
    loaded = pickle.loads(pickle.dumps(fitted))
    assert loaded.model.identity == fitted.model.identity
    assert loaded.anchors_ == fitted.anchors_ and loaded.demonstrations_ == fitted.demonstrations_
    np.testing.assert_array_equal(loaded.kneighbors(rows[0][67:])[1], fitted.kneighbors(rows[0][67:])[1])


def test_another_process_loads_the_model_by_its_name_and_reports_it(fitted, rows, monkeypatch):
    """A process of `cross_val_score(n_jobs=2)`."""
    pickled = pickle.dumps(fitted)
    assert len(pickled) < fitted.model.head.rows_VE.nbytes
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "a process")
    monkeypatch.setattr(language_model, "_LIVE", weakref.WeakSet())
    with pytest.warns(UserWarning, match="this process loads its own copy of the model tiny; set n_jobs=1"):
        loaded = pickle.loads(pickled)
    assert loaded.model is not fitted.model
    np.testing.assert_array_equal(loaded.predict(rows[0][67:]), fitted.predict(rows[0][67:]))


def test_other_weights_are_refused(model):
    message = rf"^tiny: the files of this model have changed .* \(fingerprint {model.fingerprint[:8]}, was 0{{8}}\)$"
    with pytest.raises(kp.UserError, match=message):
        language_model.load_reference(dataclasses.replace(model.identity, fingerprint="0" * 64), model.step_tokens)


def test_a_limited_context_is_kept(fitted, rows, tmp_path):
    short = kp.LanguageModel.from_pretrained("tiny", context=64)
    classifier = kp.KNNPrompting(short, fitted.task_, demo_shots=1).fit(rows[0][:31], rows[1][:31])
    classifier.save(tmp_path / "mine")
    loaded = kp.load(tmp_path / "mine")
    assert loaded.model.context == 64
    np.testing.assert_array_equal(loaded.kneighbors(rows[0][31:])[1], classifier.kneighbors(rows[0][31:])[1])
    with pytest.raises(kp.UserError, match="with context=64, not tiny with context=1024"):
        kp.load(tmp_path / "mine", model=fitted.model)


def test_a_model_without_a_name_is_refused(small_decoder):
    nameless = kp.LanguageModel.from_decoder(small_decoder("gpt2"), range(211))
    with pytest.raises(kp.UserError, match="cannot pickle this model: only models loaded by from_pretrained"):
        pickle.dumps(nameless)
