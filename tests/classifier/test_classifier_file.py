"""The file of a classifier: it returns as it was, and a damaged or foreign file is refused in one line."""

import json
import os
import pickle
from unittest import mock

import numpy as np
import pytest
import safetensors
from safetensors import numpy as safetensors_numpy

import knnprompt_jax as kp
from knnprompt_jax.classifier import arguments, classifier_file

REFUSED = "^[^\n]*: not a classifier, damaged, or of another version: fit again[^\n]*$"


@pytest.fixture
def path(fitted, tmp_path):
    fitted.save(tmp_path / "saved")
    return tmp_path / "saved"


def edit(path, change=lambda note: note, **arrays):
    """Write a classifier's file with another note or other arrays."""
    with safetensors.safe_open(path, "numpy") as file:
        [(key, note)] = file.metadata().items()
        arrays = {name: file.get_tensor(name) for name in file.keys()} | arrays  # noqa: SIM118
    safetensors_numpy.save_file(arrays, path, {key: json.dumps(change(json.loads(note)))})


def test_a_classifier_comes_back_as_it_was(fitted, path, rows, tmp_path):
    loaded = kp.load(path)  # The model too, by its name.
    assert loaded.model is not fitted.model and loaded.model.fingerprint == fitted.model.fingerprint
    assert loaded.task_ == fitted.task_ and loaded.demonstrations_ == fitted.demonstrations_
    assert loaded.anchors_ == fitted.anchors_
    assert {**loaded.get_params(), "model": 0} == {**fitted.get_params(), "model": 0}
    np.testing.assert_array_equal(loaded.predict(rows[0][67:]), fitted.predict(rows[0][67:]))
    np.testing.assert_array_equal(loaded.kneighbors(rows[0][67:])[1], fitted.kneighbors(rows[0][67:])[1])
    assert loaded.predict(rows[0][67:]).dtype == np.int64
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_a_distance_that_was_changed_after_fit_is_searched_after_loading(model, task, rows, tmp_path):
    """The commands restore the fitted classifier without its estimator."""
    classifier = kp.KNNPrompting(model, task, k=5, demo_shots=2).fit(rows[0][:67], rows[1][:67])
    classifier.distance = "l2"
    changed = classifier.answer(rows[0][67:])
    classifier.save(tmp_path / "changed")
    restored = classifier_file.read(tmp_path / "changed").restore(model)
    assert restored.store.codec.distance.name == "l2"
    readings = restored.read(arguments.queries(restored.task, rows[0][67:]))
    np.testing.assert_array_equal(restored.answer(readings).ids, changed.ids)


@pytest.mark.parametrize("share", [0.0, 0.002, 0.05, 0.5, 1.0])
def test_a_changed_bit_and_a_cut_file_are_refused(path, share):
    whole = path.read_bytes()
    index = min(int(share * len(whole)), len(whole) - 1)
    for damaged in (whole[:index] + bytes([whole[index] ^ 4]) + whole[index + 1 :], whole[:index], whole + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(kp.UserError, match=REFUSED):
            classifier_file.read(path)


def test_other_versions_and_other_content_are_refused(path):
    edit(path)
    assert len(classifier_file.read(path).content.rows) == 67, "the edit itself changes nothing"
    whole = path.read_bytes()
    changes = [
        {"change": lambda note: note | {"format": classifier_file.FORMAT + 1}},
        {"change": lambda note: {}},
        {"change": lambda note: [note]},
        {"content": np.frombuffer(b"{}", np.uint8)},
        {"log_z_2": np.zeros(55, np.float32)},
    ]
    for change in changes:
        path.write_bytes(whole)
        edit(path, **change)
        with pytest.raises(kp.UserError, match=REFUSED):
            classifier_file.read(path)


def test_what_is_no_classifier_is_refused_and_no_code_in_it_runs(tmp_path):
    class Payload:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "it ran"),))

    (tmp_path / "pickle").write_bytes(pickle.dumps(Payload()))
    safetensors_numpy.save_file({"x": np.zeros(3)}, tmp_path / "model.safetensors")
    (tmp_path / "folder").mkdir()
    for name in ("pickle", "model.safetensors", "folder"):
        with pytest.raises(kp.UserError, match=REFUSED):
            classifier_file.read(tmp_path / name)
    assert not (tmp_path / "it ran").exists()
    with pytest.raises(kp.UserError, match="none: No such file or directory"):
        classifier_file.read(tmp_path / "none")


def test_the_model_must_be_that_of_the_anchors(fitted, path, monkeypatch):
    monkeypatch.setattr(fitted.model, "name", "other")
    monkeypatch.setattr(fitted.model, "fingerprint", "0" * 64)
    with pytest.raises(kp.UserError, match="made with another model: tiny with fingerprint=.*, not other with"):
        kp.load(path, fitted.model)
    monkeypatch.setattr(kp.LanguageModel, "from_pretrained", mock.Mock(side_effect=kp.UserError("no such folder")))
    with pytest.raises(kp.UserError, match="saved: cannot load its model .*no such folder"):
        kp.load(path)


def test_a_file_is_replaced_on_request_and_a_link_stays_a_link(path, model):
    other = kp.KNNPrompting(model, k=1, demo_shots=0).fit(["a", "b"], ["x", "y"])
    with pytest.raises(kp.UserError, match="exists already"):
        other.save(path)
    link = path.parent / "link"
    link.symlink_to("saved")
    other.save(link, overwrite=True)
    assert link.is_symlink() and len(kp.load(path, model).anchors_) == 2
