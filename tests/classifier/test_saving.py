"""The file of a classifier: it returns as it was, and a file that is damaged or forged is refused in one line."""

import io
import json
import os
import pathlib
import pickle
import resource
import zipfile

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import inputs, saving
from knnprompt_jax.experts import words

CONTENT = "classifier.json"


@pytest.fixture
def path(fitted, tmp_path):
    fitted.save(tmp_path / "saved")
    return tmp_path / "saved"


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {member.filename: archive.read(member) for member in archive.infolist()}


def write(path, contents, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in contents if isinstance(contents, list) else contents.items():
            archive.writestr(name, content)


def array(shape, dtype="<f4", is_fortran=False, num_bytes=None):
    """Return the bytes of an array of zeros."""
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": is_fortran, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    file.write(bytes(4 * int(np.prod(shape)) if num_bytes is None else num_bytes))
    return file.getvalue()


def test_a_classifier_comes_back_as_it_was(fitted, path, rows):
    loaded = kp.load(path)  # The model too, by its name.
    assert loaded.model is not fitted.model and loaded.model.fingerprint == fitted.model.fingerprint
    assert loaded.task_ == fitted.task_ and loaded.demonstrations_ == fitted.demonstrations_
    assert loaded.anchors_ == fitted.anchors_
    assert {**loaded.get_params(), "model": 0} == {**fitted.get_params(), "model": 0}
    np.testing.assert_array_equal(loaded.predict(rows[0][67:]), fitted.predict(rows[0][67:]))
    np.testing.assert_array_equal(loaded.kneighbors(rows[0][67:])[1], fitted.kneighbors(rows[0][67:])[1])
    assert loaded.predict(rows[0][67:]).dtype == np.int64


def test_a_distance_that_was_changed_after_fit_is_searched_after_loading(model, task, rows, tmp_path):
    """The commands restore the fitted classifier without its estimator."""
    classifier = kp.KNNPrompting(model, task, k=5, demo_shots=2).fit(rows[0][:67], rows[1][:67])
    classifier.distance = "l2"
    changed = classifier.answer(rows[0][67:])
    classifier.save(tmp_path / "changed")
    restored = saving.read(tmp_path / "changed").restore(model)
    assert restored.store.distance.name == "l2"
    readings = restored.read(inputs.queries(restored.task, rows[0][67:]))
    np.testing.assert_array_equal(restored.answer(readings).ids, changed.ids)


def test_the_file_is_an_uncompressed_zip_and_equal_classifiers_have_equal_files(fitted, path, tmp_path):
    with zipfile.ZipFile(path) as archive:
        assert [member.filename for member in archive.infolist()] == [CONTENT, "hidden_2_NE.npy", "log_z_2_N.npy"]
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}
    kp.load(path, fitted.model).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_a_flipped_bit_is_refused(path, share):
    whole = path.read_bytes()
    index = min(int(share * len(whole)), len(whole) - 3)
    path.write_bytes(whole[:index] + bytes([whole[index] ^ 4]) + whole[index + 1 :])
    with pytest.raises(kp.UserError, match=f"^[^\n]*{path}: [^\n]*$"):
        saving.read(path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_cut_file_is_refused(path, share):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(kp.UserError, match="not a classifier, or damaged"):
        saving.read(path)


def nested(value, depth):
    return "[" * depth + json.dumps(value) + "]" * depth


def changed(content, member, **values):
    return json.dumps(content | {member: content[member] | values})


FORGED = {
    "no JSON": (lambda content: b"{", ""),
    "no UTF-8": (lambda content: b"{\xff}", ""),
    "no object": (lambda content: b"[1]", "format"),
    "nested": (lambda content: nested(1, 100_000), ""),
    "a fingerprint of two lines": (
        lambda content: changed(content, "model", fingerprint="a\nb"),
        "no valid fingerprint",
    ),
    "a dtype of two lines": (
        lambda content: changed(content, "model", dtype="float32\n"),
        "no valid fingerprint or dtype",
    ),
    "a name of two lines": (lambda content: changed(content, "model", name="a\nb"), "no valid context or name"),
    "no context": (lambda content: changed(content, "model", context=0), "no valid context or name"),
    "an unknown encoding": (
        lambda content: json.dumps(content | {"file_options": {"encoding": "x"}}),
        "unknown encoding",
    ),
    "an empty label column": (
        lambda content: json.dumps(content | {"file_options": {"label_column": ""}}),
        "wrong values",
    ),
    "another file option": (
        lambda content: json.dumps(content | {"file_options": {"path": "/etc/passwd"}}),
        "wrong values",
    ),
    "a text for a flag": (
        lambda content: json.dumps(content | {"file_options": {"merge_labels": "x"}}),
        "wrong values",
    ),
    "a flag for a text": (lambda content: json.dumps(content | {"file_options": {"encoding": True}}), "wrong values"),
    "ids of rows": (
        lambda content: json.dumps(content | {"rows": [content["rows"][0] | {"ids": {"id": [1]}}]}),
        r"rows\[0\].ids.id: str expected, not list",
    ),
    "an infinite id": (
        lambda content: json.dumps(content | {"rows": [content["rows"][0] | {"ids": {"id": 1}}]}).replace(
            '"ids": {"id": 1}', '"ids": {"id": 1e999}'
        ),
        "is not finite",
    ),
    "demonstrations": (lambda content: changed(content, "published", demo_shots="many"), "demo_shots"),
    "another format": (lambda content: json.dumps(content | {"format": 99}), "reads format 12 only"),
    "a missing member": (lambda content: json.dumps({**content, "task": None} | {}), "task: dict expected"),
    "an unknown member": (lambda content: json.dumps(content | {"more": 1}), "unknown member 'more'"),
    "a duplicate member": (lambda content: json.dumps(content)[:-1] + ', "format": 12}', "a duplicate member"),
    "NaN": (lambda content: json.dumps(content | {"num_rows": float("nan")}), "NaN is not JSON"),
    "a checked row": (lambda content: json.dumps(content | {"checked": [10**6]}), "a checked row that does not exist"),
    "a wrong type": (lambda content: json.dumps(content | {"num_rows": "many"}), "num_rows: int expected, not str"),
    "a bool for an int": (lambda content: json.dumps(content | {"num_rows": True}), "num_rows: int expected"),
    "no options": (lambda content: json.dumps(content | {"published": None}), "one kind of options"),
    "other labels": (lambda content: json.dumps(content | {"labels": [1]}), "labels are not the task's"),
    "too few rows": (
        lambda content: json.dumps(content | {"num_rows": 3}),
        "duplicate row numbers, or some out of range",
    ),
    "no rows": (lambda content: json.dumps(content | {"rows": []}), "duplicate row numbers, or some out of range"),
    "a missing anchor": (
        lambda content: json.dumps(content | {"rows": content["rows"][:-1]}),
        "54 rows|no such rows",
    ),
    "a repeated row": (
        lambda content: json.dumps(content | {"rows": [*content["rows"], content["rows"][0]]}),
        "duplicate row numbers",
    ),
    "no view": (lambda content: json.dumps(content | {"views": []}), "duplicate views, or none"),
    "a demonstration that is no row": (
        lambda content: json.dumps(content | {"views": [{"demo_shots": 2, "rows": [67]}]}),
        "a view has no such rows",
    ),
    "a choice of the published classifier": (
        lambda content: json.dumps(content | {"choice": CHOICE}),
        "the choice of another kind of classifier",
    ),
    "a template with code": (
        lambda content: json.dumps(content | {"task": content["task"] | {"template": "{0.__class__}"}}),
        "template has",
    ),
    "an option out of range": (
        lambda content: json.dumps(content | {"published": content["published"] | {"k": 0}}),
        "k=0: at least 1",
    ),
    "a block without its array": (lambda content: json.dumps(content | {"layer": 3}), "its members are not"),
}
MEMBER = {
    "expert": "knn",
    "demo_shots": 2,
    "setting": 3.0,
    "factor": 1.0,
    "weight": 1.0,
    "share": 1.0,
    "accuracy": 0.5,
}
OUTCOMES = [{"probability": 0.5, "is_right": True}] * 67
CHOICE = {
    "members": [MEMBER],
    "obstacles": [],
    "estimate": None,
    "num_rows": 67,
    "is_earlier": False,
    "outcomes": OUTCOMES,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": [MEMBER | {"expert": "oracle"}]}, "the expert oracle, which the options do not have"),
        ({"members": [MEMBER | {"demo_shots": 5}]}, "the expert knn on prompts that it does not read"),
        ({"members": [MEMBER | {"expert": "words"}]}, "the expert words, which the options do not have"),
        ({"members": [MEMBER | {"expert": "probe"}]}, "the expert probe, which the options do not have"),
        ({"members": [MEMBER | {"weight": -1.0}]}, "the expert knn with a number out of range"),
        ({"members": [MEMBER | {"accuracy": 1.5}]}, "the expert knn with a number out of range"),
        ({"members": [MEMBER | {"factor": 1e9}]}, "the expert knn with a number out of range"),
        ({"members": [MEMBER | {"factor": 1e400}]}, "not JSON|not finite"),
        ({"outcomes": OUTCOMES[1:]}, "another number of held-out rows"),
        ({"outcomes": [*OUTCOMES[1:], {"probability": 1.5, "is_right": True}]}, "a held-out row with a probability"),
        ({"outcomes": [*OUTCOMES[1:], {"probability": 0.5, "is_right": 1}]}, "is_right: bool expected, not int"),
    ],
)
def test_forged_experts_are_refused(model, task, rows, tmp_path, change, message):
    path = tmp_path / "pool"
    kp.AutoClassifier(model, task, experts=("knn",), demo_shots=2).fit(rows[0][:67], rows[1][:67]).save(path)
    contents = members(path)
    content = json.loads(contents[CONTENT])
    for choice, is_right in ((CHOICE, True), (CHOICE | change, False)):
        write(path, contents | {CONTENT: json.dumps(content | {"choice": choice})})
        if is_right:
            assert kp.load(path, model).predict(rows[0][67:70]).shape == (3,)
        else:
            with pytest.raises(kp.UserError, match=message):
                saving.read(path)


def test_the_expert_on_words_is_kept_and_checked(model, task, rows, tmp_path, monkeypatch):
    """A saved classifier does not count the terms of its rows again."""
    path = tmp_path / "pool"
    texts = [f"Straße {text}" for text in rows[0][:67]]
    pool = kp.AutoClassifier(model, task, experts=("knn", "words"), demo_shots=0).fit(texts, rows[1][:67])
    pool.save(path)
    monkeypatch.setattr(words.Vocabulary, "of", None)
    wanted_QC = pool.predict_proba(rows[0][67:])
    np.testing.assert_array_equal(kp.load(path, model).predict_proba(rows[0][67:]), wanted_QC)
    contents = members(path)
    terms = contents["terms.txt"].split(b"\n")
    for changed_terms, table in ((terms, array((len(terms) + 1, 3))), (terms[1:], contents["terms_FC.npy"])):
        write(path, contents | {"terms.txt": b"\n".join(changed_terms), "terms_FC.npy": table})
        with pytest.raises(kp.UserError, match="damaged: terms_FC.npy: (its columns|not a float32 array)"):
            saving.read(path)
    write(path, {name: content for name, content in contents.items() if name != "terms.txt"})
    with pytest.raises(kp.UserError, match="its members are not"):
        saving.read(path)


@pytest.mark.parametrize("name", FORGED)
def test_forged_content_is_refused(path, name):
    edit, message = FORGED[name]
    contents = members(path)
    contents[CONTENT] = edit(json.loads(contents[CONTENT]))
    write(path, contents)
    with pytest.raises(
        kp.UserError, match=f"^{path}: not a classifier, or damaged{message and f': .*{message}' or '$'}"
    ):
        saving.read(path)


NO_ARRAY = "hidden_2_NE.npy: not a float32 array of 55 rows"
ARRAYS = {
    "rows": (array((2, 7)), NO_ARRAY),
    "axes": (array((55,)), NO_ARRAY),
    "dtype": (array((55, 7), "<f8", num_bytes=55 * 7 * 8), NO_ARRAY),
    "objects": (array((55, 7), "|O"), NO_ARRAY),
    "order": (array((55, 7), is_fortran=True), NO_ARRAY),
    "a huge header": (array((55, 10**13), num_bytes=8), NO_ARRAY),
    "too short": (array((55, 7), num_bytes=8), NO_ARRAY),
    "NaN": (array((55, 1), num_bytes=0) + np.full(55, np.nan, "<f4").tobytes(), "a number is not finite"),
    "no array": (b"\x93NUMPY", NO_ARRAY),
    "a pickle": (pickle.dumps(np.zeros((55, 7))), NO_ARRAY),
    "texts": (array((55, 7), "<U1", num_bytes=55 * 7 * 4), NO_ARRAY),
    "structures": (array((55, 7), [("a", "<f4")]), NO_ARRAY),
    "a nested header": (b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"[" * 9000 + bytes(55 * 4), NO_ARRAY),
    "code": (b"\x93NUMPY\x01\x00" + (54).to_bytes(2, "little") + b"__import__('os')".ljust(54) + bytes(220), NO_ARRAY),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_do_not_match_are_refused(path, name):
    content, message = ARRAYS[name]
    write(path, members(path) | {"hidden_2_NE.npy": content})
    with pytest.raises(kp.UserError, match=f"^{path}: not a classifier, or damaged: .*{message}"):
        saving.read(path)


def test_states_of_another_width_than_the_models_are_refused(fitted, path):
    write(path, members(path) | {"hidden_2_NE.npy": array((55, 7))})
    with pytest.raises(kp.UserError, match="damaged: its states are not as wide as the model's"):
        kp.load(path, fitted.model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda contents: [*contents.items(), ("../outside", b"x")], "its members are not"),
        (lambda contents: [*contents.items(), (CONTENT, contents[CONTENT])], "a duplicate member"),
        (lambda contents: [("log_z_2_N.npy", contents["log_z_2_N.npy"])], "no member classifier.json"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_other_members_are_refused(path, change, message):
    write(path, change(members(path)))
    with pytest.raises(kp.UserError, match=message):
        saving.read(path)
    assert [each.name for each in path.parent.iterdir()] == ["saved"]


def test_compressed_members_are_refused(path):
    """A small file may otherwise become huge."""
    write(path, members(path), zipfile.ZIP_DEFLATED)
    with pytest.raises(kp.UserError, match="is compressed"):
        saving.read(path)


@pytest.mark.parametrize(("before", "after"), [(b"x", b""), (b"", b"x"), (b"", bytes(30))])
def test_bytes_around_the_archive_are_refused(path, before, after):
    """`zipfile` skips them, so a damaged file would load."""
    path.write_bytes(before + path.read_bytes() + after)
    with pytest.raises(kp.UserError, match="^[^\n]*not a classifier[^\n]*$"):
        saving.read(path)


def test_a_header_that_is_no_python_is_refused(path):
    header = b"\x93NUMPY\x01\x00" + (10_000).to_bytes(2, "little") + b"(" * 10_000
    write(path, members(path) | {"hidden_2_NE.npy": header})
    with pytest.raises(kp.UserError, match="not a classifier, or damaged"):
        saving.read(path)


def test_a_pickle_is_never_run(path, tmp_path):
    class Payload:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "it ran"),))

    payload = pickle.dumps(Payload())
    for name in members(path):
        write(tmp_path / name, members(path) | {name: payload})
        with pytest.raises(kp.UserError, match="not a classifier, or damaged"):
            saving.read(tmp_path / name)
    (tmp_path / "all").write_bytes(payload)
    with pytest.raises(kp.UserError, match="not a classifier, or damaged"):
        saving.read(tmp_path / "all")
    assert not (tmp_path / "it ran").exists()


def test_what_is_no_file_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(kp.UserError, match="folder: a folder, but a classifier is a file: fit again"):
        saving.read(tmp_path / "folder")
    with pytest.raises(kp.UserError, match="none: No such file or directory"):
        saving.read(tmp_path / "none")


def test_the_model_must_be_that_of_the_anchors(fitted, path, monkeypatch):
    monkeypatch.setattr(fitted.model, "name", "other")
    monkeypatch.setattr(fitted.model, "fingerprint", "0" * 64)
    message = r"made with another model: tiny \(\w{8}\), not other \(0{8}\); give the model 'tiny', or fit again"
    with pytest.raises(kp.UserError, match=message):
        kp.load(path, fitted.model)


def test_a_model_that_cannot_be_read_is_named_with_the_remedy(path):
    contents = members(path)
    content = json.loads(contents[CONTENT])
    content["model"]["name"] = "./nowhere"
    write(path, contents | {CONTENT: json.dumps(content)})
    message = r"cannot load its model .in Python, give model=.: no such folder: ./nowhere"
    with pytest.raises(kp.UserError, match=message):
        kp.load(path)


def test_options_that_may_change_after_a_fit_are_saved(fitted, path, model, rows):
    loaded = kp.load(path, model).set_params(k=2, tie_break="nearest", random_state=7)
    loaded.save(path, overwrite=True)
    again = kp.load(path, model)
    assert (again.k, again.tie_break) == (2, "nearest")
    assert again.random_state == fitted.random_state, "from the next fit"
    np.testing.assert_array_equal(again.predict(rows[0][67:]), loaded.predict(rows[0][67:]))


def test_only_classifiers_are_replaced(fitted, tmp_path):
    fitted.save(tmp_path / "saved")
    with pytest.raises(kp.UserError, match="exists already; choose another file, or give overwrite=True"):
        fitted.save(tmp_path / "saved")
    (tmp_path / "train.csv").write_text("mine")
    with pytest.raises(kp.UserError, match="exists and is not a classifier; choose another file"):
        fitted.save(tmp_path / "train.csv", overwrite=True)
    assert (tmp_path / "train.csv").read_text() == "mine"
    damaged = (tmp_path / "saved").read_bytes()[:200]
    (tmp_path / "saved").write_bytes(damaged)
    fitted.save(tmp_path / "saved", overwrite=True)
    assert saving.read(tmp_path / "saved").content.anchors == tuple(fitted.anchors_.values())


def test_a_link_stays_a_link(fitted, path, model):
    link = path.parent / "link"
    link.symlink_to("saved")
    kp.KNNPrompting(model, k=1, demo_shots=0).fit(["a", "b"], ["x", "y"]).save(link, overwrite=True)
    assert link.is_symlink() and len(kp.load(path, model).anchors_) == 2


@pytest.mark.parametrize("bytes_allowed", [100, 2000, 20_000])
def test_a_system_that_refuses_to_write_leaves_the_earlier_file(fitted, path, model, bytes_allowed):
    """Files must not grow beyond a limit: within the JSON, and within the arrays."""
    other = kp.KNNPrompting(model, k=1, demo_shots=0).fit([f"text {i}" for i in range(31)], ["x"] * 30 + ["y"])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_allowed, limits[1]))
    try:
        with pytest.raises(kp.UserError, match="File too large") as caught:
            other.save(path, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(path.parent) in str(caught.value)
    assert kp.load(path, model).anchors_ == fitted.anchors_
    other.save(path, overwrite=True)
    assert [pathlib.Path(each).name for each in path.parent.iterdir()] == ["saved"]
