"""Classifiers in folders: they come back as they were, and what was altered or is none is refused in one line."""

import copy
import dataclasses
import json
import resource
import shutil

import jax
import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import files
from knnprompt_jax.classifier import estimator, saving
from knnprompt_jax.settings import stores
from knnprompt_jax.store import manifest


@pytest.fixture
def folder(fitted, tmp_path):
    fitted.save(tmp_path / "saved")
    return tmp_path / "saved"


def forged(folder, edit):
    """Edits the files as one would who also knows how to put the sums right."""
    path, rows_path = folder / "classifier.json", folder / "rows.jsonl"
    content, rows = json.loads(path.read_text()), [json.loads(line) for line in rows_path.read_text().splitlines()]
    edit(content, rows)
    path.write_text(json.dumps(content))
    rows_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return with_fitting_sums(folder)


def with_fitting_sums(folder):
    """The folder, whose manifest has the sums of what its files are now."""
    described = manifest.read(folder)
    (folder / files.MANIFEST).unlink()
    manifest.write(folder, dataclasses.replace(described, files=manifest.checksums(folder)))
    return folder


def test_a_classifier_comes_back_as_it_was(fitted, folder, rows):
    loaded = kp.load(folder)  # The model too, by its name.
    assert loaded.model is not fitted.model and loaded.model.fingerprint == fitted.model.fingerprint
    assert loaded.task == fitted.task and loaded.demonstrations_ == fitted.demonstrations_
    assert loaded.anchors_ == fitted.anchors_
    assert {**loaded.get_params(), "model": 0} == {**fitted.get_params(), "model": 0}
    np.testing.assert_array_equal(loaded.predict(rows[0][67:]), fitted.predict(rows[0][67:]))
    np.testing.assert_array_equal(loaded.kneighbors(rows[0][67:])[1], fitted.kneighbors(rows[0][67:])[1])
    assert loaded.predict(rows[0][67:]).dtype == np.int64


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda content, rows: content.pop("task"), "KeyError: 'task'"),
        (lambda content, rows: content["task"].update(template="{0.__class__}"), "template has"),
        (lambda content, rows: content["parameters"].update(model="evil/model"), "its options are not"),
        (lambda content, rows: content["parameters"].update(k="three"), "k='three'"),
        (lambda content, rows: content.update(labels=[1]), "labels"),
        (lambda content, rows: content.update(choice=None), "not a saved classifier: TypeError"),
        (lambda content, rows: content.update(num_rows="many"), "num_rows"),
        (lambda content, rows: rows.pop(), "the saved states do not match its 54 anchors"),
        (lambda content, rows: rows[-1].update(id=10**6), "num_rows=67"),
        (lambda content, rows: rows[0]["fields"].update(sentence="changed"), "other demonstrations"),
    ],
)
def test_forged_files_are_refused(fitted, folder, edit, message):
    with pytest.raises(kp.UserError, match=message):
        kp.load(forged(folder, edit), fitted.model)


def test_arrays_that_a_device_stores_by_column_are_saved_by_row(fitted, tmp_path, monkeypatch):
    by_column = jax.tree.map(np.asfortranarray, fitted.states_)
    monkeypatch.setattr(fitted, "states_", by_column)
    fitted.save(tmp_path / "mine")
    np.testing.assert_array_equal(kp.load(tmp_path / "mine", fitted.model).states_.hidden_NE, by_column.hidden_NE)


def test_the_model_must_be_the_anchors_own(fitted, folder, monkeypatch):
    monkeypatch.setattr(fitted.model, "name", "other")
    monkeypatch.setattr(fitted.model, "fingerprint", "0" * 64)
    with pytest.raises(
        kp.UserError,
        match=r"made with another model: .*tiny \(\w{8}\).*, not .*other.*; give the model 'tiny', or fit again",
    ):
        kp.load(folder, fitted.model)


def test_a_model_that_is_not_there_is_told_with_the_way_out(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(fitted.model, "name", "./nowhere")
    fitted.save(tmp_path / "saved")
    with pytest.raises(
        kp.UserError, match=r"cannot load its model .in Python, give model=.: no such folder: ./nowhere"
    ):
        kp.load(tmp_path / "saved")


def edit_manifest(change, fitting=False):
    def edit(folder):
        content = json.loads((folder / files.MANIFEST).read_text())
        change(content)
        if fitting:  # Somebody made the checksum fit.
            del content["checksum"]
            content["checksum"] = manifest.text_hash(json.dumps(content, sort_keys=True))
        (folder / files.MANIFEST).write_text(json.dumps(content))

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (edit_manifest(lambda content: content["provenance"].update(more=1), True), "not the manifest .* 'more'"),
        (edit_manifest(lambda content: content.update(files=[]), True), "not the manifest of a classifier"),
        (edit_manifest(lambda content: content.update(format=99)), "newer than this version reads"),
        (edit_manifest(lambda content: content.update(format=2)), "from an earlier version"),
        (lambda folder: (folder / files.MANIFEST).write_text("[1]"), "not the manifest of a classifier"),
        (lambda folder: (folder / "states" / "more").write_text("x"), "more: unexpected file in a saved classifier"),
        (lambda folder: (folder / "rows.jsonl").unlink(), "rows.jsonl: missing"),
        (shutil.rmtree, "no such folder of a saved classifier"),
    ],
)
def test_altered_manifests_and_files_that_nobody_listed_are_refused(fitted, folder, edit, message):
    edit(folder)
    with pytest.raises(kp.UserError, match=message):
        kp.load(folder, fitted.model)


@pytest.mark.parametrize("count", [2, 10**13, 10**30])
def test_states_of_other_sizes_than_their_header_are_refused(fitted, folder, count):
    with (folder / "states" / "log_z_N.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (count,)})
        file.write(bytes(8))
    with pytest.raises(kp.UserError, match="cannot read its states|saved states do not match"):
        kp.load(with_fitting_sums(folder), fitted.model)


def test_what_something_else_made_is_refused(folder):
    made = saving.read(folder).manifest.provenance
    made.check(dataclasses.replace(made, model="elsewhere", num_demonstrations=99), folder)
    compared = [field for field in dataclasses.fields(made) if field.name not in ("model", "num_demonstrations")]
    for field in compared:
        with pytest.raises(kp.UserError, match=f"made with {field.metadata['words']}: .*, not .*other"):
            made.check(dataclasses.replace(made, **{field.name: ("other",)}), folder)


def test_a_folder_that_is_replaced_while_it_is_read_is_not_mixed(fitted, folder):
    saved = saving.read(folder)
    kp.load(folder, fitted.model).relabel([min(fitted.anchors_)], [5]).save(folder, overwrite=True)
    with pytest.raises(kp.UserError, match="another process replaced it: rerun the command"):
        estimator.restore(saved, fitted.model)


def test_anchors_in_host_memory_do_not_pass_through_the_device(model, task, rows, tmp_path, monkeypatch):
    options = {"demo_shots": 0, "store_options": stores.StoreOptions(placement="host")}
    fitted = kp.KNNPrompting(model, task, **options).fit(rows[0][:67], rows[1][:67])
    fitted.save(tmp_path / "mine")
    monkeypatch.setattr(saving.parallel, "put_rows", None)
    loaded = kp.load(tmp_path / "mine", model)
    monkeypatch.undo()
    np.testing.assert_array_equal(loaded.predict(rows[0][67:]), fitted.predict(rows[0][67:]))


def test_options_that_made_the_anchors_take_effect_from_the_next_fit(fitted, model, task, rows, tmp_path):
    classifier = kp.KNNPrompting(model, task, k=5, demo_shots=2).fit(rows[0][:67], rows[1][:67])
    options = {"label_token": "first", "centroid": "arithmetic", "truncation": "error", "random_state": 7}
    options["store_options"] = stores.StoreOptions("dense", "float16")
    changed = classifier.set_params(**options)
    np.testing.assert_array_equal(changed.predict_proba(rows[0][67:]), fitted.predict_proba(rows[0][67:]))
    text = " ".join(["word"] * 3000)  # An error with truncation="error".
    assert changed.predict([text]) == fitted.predict([text]) and changed.explain(text[:9]).neighbours
    later = copy.deepcopy(changed).partial_fit(["x"], [rows[1][0]])
    assert later.store_.codec.label_ids == fitted.store_.codec.label_ids and later.searched_ is later.store_
    assert later.store_.codec.key_dtype == "float32" and changed.use(changed.choice_).label_token == "last"
    changed.save(tmp_path / "mine")
    loaded = kp.load(tmp_path / "mine", model)
    np.testing.assert_array_equal(loaded.predict_proba(rows[0][67:]), fitted.predict_proba(rows[0][67:]))
    assert (
        loaded.label_token == "last"
        and loaded.random_state == fitted.random_state
        and changed.fit(rows[0][:67], rows[1][:67]).answer(["x"]).ids.shape == (1, 0)
    )


def test_a_folder_that_is_being_replaced_is_left_to_its_writer(folder):
    """Between the two renames of a writer, which lives or has died."""
    folder.rename(files.replaced(folder))
    with files.lock(folder), pytest.raises(kp.UserError, match="another process is writing to it"):
        saving.read(folder)
    assert not folder.exists()
    saving.read(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["saved"]


def test_only_classifiers_and_empty_folders_are_replaced(fitted, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    fitted.save(work)
    with pytest.raises(kp.UserError, match="exists already"):
        fitted.save(work)
    (tmp_path / "notes").mkdir()
    for file in (tmp_path / "notes" / "a.txt", tmp_path / "train.csv"):
        file.write_text("mine")
        with pytest.raises(kp.UserError, match="exists and is not a saved classifier; choose another folder"):
            fitted.save(file.parent if file.parent != tmp_path else file, overwrite=True)
        assert file.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "train.csv", "work"]


@pytest.mark.parametrize("bytes_allowed", [100, 2000, 20_000])
def test_a_system_that_refuses_to_write_is_told_and_leaves_the_old(fitted, folder, bytes_allowed):
    """Files may not grow beyond a limit: at that of JSON, that of the manifest, that of the arrays."""
    other = kp.load(folder, fitted.model).remove(list(fitted.anchors_)[:9])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_allowed, limits[1]))
    try:
        with pytest.raises(kp.UserError, match="File too large") as caught:
            other.save(folder, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(folder.parent) in str(caught.value)
    assert kp.load(folder, fitted.model).anchors_ == fitted.anchors_
    other.save(folder, overwrite=True)
    assert [path.name for path in folder.parent.iterdir()] == ["saved"]
