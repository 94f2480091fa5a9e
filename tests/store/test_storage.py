"""Saved datastores: what is read back is what was written, or is refused with the reason."""

import dataclasses
import json
import os
import pathlib
import re
import shutil

import jax
import numpy as np
import pytest

from knnprompt_jax import errors, files
from knnprompt_jax.store import manifest, searching, storage, stores

LABELS = ("0", "1", "2", "3", "4")
PROVENANCE = manifest.Provenance(
    model="tiny",
    fingerprint="f1",
    tokenizer="t1",
    dtype="float32",
    task="colours",
    template="Text: {text}\nColour:",
    labels=LABELS,
    label_words=("red", "blue", "green", "grey", "pink"),
    label_ids=(3, 4998, 7, 11, 13),
    demonstrations="d1",
    num_demonstrations=2,
    truncation="left",
)
KINDS = {
    "dense": {"kind": "dense"},
    "dense bfloat16": {"kind": "dense", "key_dtype": "bfloat16"},
    "dense hidden": {"kind": "dense", "representation": "hidden"},
    "factored": {"kind": "factored"},
    "factored released": {"kind": "factored", "released": True},
    "factored float16": {"kind": "factored", "key_dtype": "float16"},
}


def build(world, rows=slice(None), kind="dense", **options):
    anchors, labels_N = world.anchors[rows], world.labels_N[rows]
    ids = 10 + 3 * np.arange(len(labels_N))
    return stores.build(kind, world.head, anchors, labels_N, PROVENANCE.label_ids, ids=ids, **options)


def load(folder, world, **where):
    return storage.open_folder(folder, PROVENANCE).load(world.head, **where)


def check_equal(got, want):
    """Array for array, bit for bit."""
    for ours, theirs in (got.anchors.keys, want.anchors.keys), (got.codec.constants, want.codec.constants):
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        assert [leaf.dtype for leaf in jax.tree.leaves(ours)] == [leaf.dtype for leaf in jax.tree.leaves(theirs)]
    np.testing.assert_array_equal(got.labels_N, want.labels_N)
    np.testing.assert_array_equal(got.ids_N, want.ids_N)


@pytest.fixture(scope="module")
def saved(world, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("stores") / "dense"
    storage.save(folder, build(world), PROVENANCE, anchors="a1")
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_what_is_loaded_is_what_was_saved(name, world, tmp_path):
    store = build(world, **KINDS[name])
    storage.save(tmp_path / "store", store, PROVENANCE)
    loaded, on_host = (load(tmp_path / "store", world, on_host=on_host, memory_mb=9) for on_host in (False, True))
    for other in (loaded, on_host):
        check_equal(other, store)
        assert other.codec.options == store.codec.options and other.memory_mb == 9
    representation = store.codec.representations[0]
    want, *found = (one.search(world.queries, 3, representation=representation) for one in (store, loaded, on_host))
    for got in found:
        np.testing.assert_allclose(got.distances_Qk, want.distances_Qk, atol=1e-4)
    assert not loaded.anchors.on_host and on_host.anchors.on_host
    storage.save(tmp_path / "again", on_host, PROVENANCE)
    check_equal(load(tmp_path / "again", world), store)


def test_the_manifest_says_what_there_is(saved, world):
    found = storage.open_folder(saved, PROVENANCE).manifest
    assert found.provenance == PROVENANCE and found.kind == "dense" and found.anchors == "a1"
    assert list(found.class_counts.values()) == np.bincount(world.labels_N).tolist()
    assert {"jax", "numpy", "orbax-checkpoint", "python"} <= set(found.versions)
    assert set(found.files) == {
        path.relative_to(saved).as_posix() for path in saved.rglob("*") if path.is_file() and path.name != manifest.FILE
    }


DIFFERENCES = {
    "fingerprint": ("f2", "made with another model (tiny there, tiny here): 'f1' there, 'f2' here"),
    "tokenizer": ("t2", "another tokenizer"),
    "dtype": ("bfloat16", "another dtype of the model: 'float32' there, 'bfloat16' here"),
    "task": ("shades", "another task: 'colours' there, 'shades' here"),
    "template": ("{text}:", "another template"),
    "labels": (LABELS[::-1], "other labels"),
    "label_words": (("red", "blue", "green", "grey", "gold"), "other label words"),
    "label_ids": ((3, 4998, 7, 11, 17), "other tokens of the label words"),
    "demonstrations": ("d2", "other demonstrations"),
    "truncation": ("drop", "another truncation: 'left' there, 'drop' here"),
}


@pytest.mark.parametrize("field", DIFFERENCES)
def test_what_something_else_made_is_refused(field, saved):
    value, message = DIFFERENCES[field]
    with pytest.raises(errors.UserError, match=re.escape(message)):
        storage.open_folder(saved, dataclasses.replace(PROVENANCE, **{field: value}))


@pytest.mark.parametrize("field", ["model", "num_demonstrations"])
def test_what_is_for_people_is_not_compared(field, saved):
    storage.open_folder(saved, dataclasses.replace(PROVENANCE, **{field: "elsewhere/tiny"}))


def largest(folder):
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def flip_a_byte(folder):
    content = bytearray(largest(folder).read_bytes())
    content[len(content) // 2] ^= 1
    largest(folder).write_bytes(content)


def edit_manifest(change):
    def edit(folder):
        content = json.loads((folder / manifest.FILE).read_text())
        change(content)
        (folder / manifest.FILE).write_text(json.dumps(content))

    return edit


DAMAGE = {
    "nothing there": (shutil.rmtree, "not a saved datastore: it has no manifest.json"),
    "no manifest": (lambda folder: (folder / manifest.FILE).unlink(), "not a saved datastore"),
    "half a manifest": (lambda folder: os.truncate(folder / manifest.FILE, 100), "damaged"),
    "another JSON": (lambda folder: (folder / manifest.FILE).write_text("[1]"), "not the manifest of a datastore"),
    "other text": (lambda folder: (folder / manifest.FILE).write_text("grey"), "damaged"),
    "missing file": (lambda folder: largest(folder).unlink(), "missing from the datastore"),
    "truncated file": (lambda folder: os.truncate(largest(folder), 1000), "1000 bytes, but .* were written: truncated"),
    "altered file": (flip_a_byte, "altered since it was written"),
    "altered counts": (edit_manifest(lambda content: content["class_counts"].update({"1": 7})), "altered since"),
    "altered checksum": (edit_manifest(lambda content: content["files"].clear()), "altered since"),
    "newer format": (edit_manifest(lambda content: content.update(format=2)), "format 2 is newer than .*: update"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused(name, saved, tmp_path):
    damage, message = DAMAGE[name]
    folder = tmp_path / "store"
    shutil.copytree(saved, folder)
    damage(folder)
    with pytest.raises(errors.UserError, match=message) as error:
        storage.open_folder(folder, PROVENANCE)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (searching.Question(212), "k=212: choose from 1 to 211"),
        (searching.Question(1, representation="hidden"), "choose from distribution, partial, partial_raw"),
        (searching.Question(1, approximate_recall=1.5), "approximate_recall=1.5"),
    ],
)
def test_what_it_cannot_answer_is_told_before_it_is_loaded(question, message, saved):
    with pytest.raises(errors.UserError, match=message):
        storage.open_folder(saved, PROVENANCE).check(question)


@pytest.mark.parametrize("name", ["dense", "factored released"])
@pytest.mark.parametrize("on_host", [False, True])
def test_appending_and_removing_is_building_at_once(name, on_host, world, tmp_path):
    folder, first = tmp_path / "store", build(world, slice(0, 150), **KINDS[name])
    storage.save(folder, first, PROVENANCE)
    grown = load(folder, world, on_host=on_host).append(world.anchors[150:], world.labels_N[150:])
    assert grown.ids_N[150] == 10 + 3 * 149 + 1
    storage.save(folder, grown.remove([10, 10 + 3 * 149]), PROVENANCE, overwrite=True)
    found = storage.open_folder(folder, PROVENANCE)
    kept_n = np.setdiff1d(np.arange(211), [0, 149])
    assert list(found.manifest.class_counts.values()) == np.bincount(world.labels_N[kept_n]).tolist()
    changed, at_once = found.load(world.head), build(world, kept_n, **KINDS[name])
    np.testing.assert_array_equal(changed.labels_N, at_once.labels_N)
    if name == "dense":  # A factored store keeps the centre of its first anchors.
        np.testing.assert_allclose(changed.anchors.keys.values_NV, at_once.anchors.keys.values_NV, atol=1e-5)
    for direction in ("forward", "released"):
        got, want = (store.search(world.queries, 5, direction) for store in (changed, at_once))
        np.testing.assert_allclose(got.distances_Qk, want.distances_Qk, atol=1e-4)
    back = changed.remove(changed.ids_N[148:]).append(world.anchors[:0], [])
    jax.tree.map(
        lambda ours, first: np.testing.assert_array_equal(ours, np.asarray(first)[1:149]),
        back.anchors.keys,
        first.anchors.keys,
    )


def test_a_folder_is_not_overwritten_unasked(saved, world):
    with pytest.raises(errors.UserError, match="exists already; choose another folder, or overwrite it"):
        storage.save(saved, build(world), PROVENANCE)


class Died(BaseException):
    pass


STEPS = [(pathlib.Path, "mkdir"), (storage.ocp.Checkpointer, "save"), (manifest, "checksums"), (manifest, "write")]
STEPS += [(pathlib.Path, "rename", count) for count in (1, 2)] + [(shutil, "rmtree", count) for count in (1, 2)]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: "-".join(map(str, step[1:])))
def test_overwriting_that_dies_leaves_the_old_or_the_new_whole(step, before, world, tmp_path, monkeypatch):
    """Killed before or after each step that changes the disk."""
    folder, (owner, name, *count) = tmp_path / "store", step
    old, new = build(world, slice(0, 100)), build(world, slice(50, 211))
    storage.save(folder, old, PROVENANCE)
    original, calls = getattr(owner, name), []

    def dying(*arguments, **options):
        calls.append(name)
        dies = len(calls) == (count or [1])[0]
        if dies and before:
            raise Died
        result = original(*arguments, **options)
        if dies:
            raise Died
        return result

    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(owner, name, dying)
        storage.save(folder, new, PROVENANCE, overwrite=True)
    found = load(folder, world)
    check_equal(found, old if len(found) == 100 else new)
    storage.save(folder, new, PROVENANCE, overwrite=True)
    check_equal(load(folder, world), new)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_file_that_is_not_finished_leaves_the_earlier_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(Died), files.new_file(path) as draft:
        draft.write_text("half")
        raise Died
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with files.new_file(path) as draft:
        draft.write_text("new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]
