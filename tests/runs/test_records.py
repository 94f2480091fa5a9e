"""Records: whole or not at all, and foreign files refused."""

import dataclasses
import json
import types

import pytest

from knnprompt_jax import errors
from knnprompt_jax.runs import records
from tests.runs.conftest import make_record


@pytest.fixture
def record() -> records.Record:
    return make_record(experiment="imbalance", cell={"ratio": 0.25})


def test_a_record_comes_back_as_it_was(record, tmp_path):
    path = records.write(tmp_path / "new", record)
    assert records.read(path) == record
    assert [file.name for file in path.parent.iterdir()] == [record.file_name]


@pytest.mark.parametrize(("revision", "model"), [("", "m"), ("v2", "m@v2")])
def test_a_revision_of_an_older_record_becomes_part_of_the_models_name(record, tmp_path, revision, model):
    older = dataclasses.replace(record, model="m", source={"split": "dev", "revision": revision})
    loaded = records.read(records.write(tmp_path, older))
    assert (loaded.model, loaded.source) == (model, {"split": "dev"})


def test_a_truncated_record_or_one_of_another_key_is_not_finished(record, tmp_path):
    path = records.write(tmp_path, record)
    content = path.read_bytes()
    run = types.SimpleNamespace(experiment="", file_name=record.file_name, key=record.key)
    assert records.finished(tmp_path, [run]) == {record.file_name: record}
    for length in range(0, len(content), 13):
        path.write_bytes(content[:length])
        assert not records.finished(tmp_path, [run]), length
    path.write_bytes(content)
    assert not records.finished(tmp_path, [types.SimpleNamespace(**{**vars(run), "key": "00" * 32})])


def test_a_record_with_a_checksum_of_older_versions_is_read(record, tmp_path):
    path = records.write(tmp_path, record)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"checksum": "00"}))
    assert records.read(path) == record


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a record"),
        ("[]", "not a record of knnprompt_jax"),
        ('{"a": 1}', "not a record of knnprompt_jax"),
        ('{"format": 3}', "format 3; this version reads format 5"),
        ('{"format": 5, "task": "mr"}', "not a record of knnprompt_jax"),
        ("[" * 100_000, "not a record"),
    ],
)
def test_foreign_files_are_refused_with_the_reason(content, message, tmp_path):
    (tmp_path / "file.json").write_text(content)
    with pytest.raises(errors.UserError, match=message):
        records.read(tmp_path / "file.json")


def test_all_records_of_a_folder_are_read_in_the_order_of_their_names(record, tmp_path):
    written = [dataclasses.replace(record, seed=seed, file_name=f"{seed}.json") for seed in (5, 3)]
    for one in written:
        records.write(tmp_path, one)
    (tmp_path / "companion").mkdir()
    assert records.read_all(tmp_path) == sorted(written, key=lambda one: one.file_name)


def test_a_folder_without_records_says_what_it_holds(tmp_path):
    for name in "abcdefghi":
        (tmp_path / f"{name}.txt").touch()
    with pytest.raises(errors.UserError, match="no records; it holds a.txt, b.txt, .*, h.txt and 1 more$"):
        records.read_all(tmp_path)
    with pytest.raises(errors.UserError, match="missing: no such folder"):
        records.read_all(tmp_path / "missing")
