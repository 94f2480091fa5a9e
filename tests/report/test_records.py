"""Records: whole or not at all, and foreign files refused."""

import types

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.report import records
from tests.study.small_world import make_record


@pytest.fixture
def record() -> records.Record:
    return make_record(experiment="imbalance", cell={"ratio": 0.25})


def test_a_record_comes_back_as_it_was(record, tmp_path):
    path = records.write(tmp_path / "new", record)
    assert records.read_all(path) == [record]
    assert [file.name for file in path.parent.iterdir()] == [record.file_name]


def test_a_truncated_record_is_never_read_as_whole(record, tmp_path):
    path = records.write(tmp_path, record)
    content = path.read_bytes()
    run = types.SimpleNamespace(experiment="", file_name=record.file_name)
    assert records.finished(tmp_path, [run]) == {record.file_name: record}
    for length in range(0, len(content), 13):
        path.write_bytes(content[:length])
        with pytest.raises(errors.UserError, match=f"{record.file_name}: not a record"):
            records.finished(tmp_path, [run])
    assert not records.finished(tmp_path, [types.SimpleNamespace(experiment="", file_name="another.json")])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a record"),
        ('{"a": 1}', "'format'"),
        ('{"format": 3}', "it has format 3"),
        ('{"format": 5, "task": "mr"}', "'macro_f1'"),
        ("[" * 100_000, "not a record"),
    ],
)
def test_a_foreign_file_is_refused_with_the_reason(content, message, tmp_path):
    (tmp_path / "file.json").write_text(content)
    with pytest.raises(errors.UserError, match=message):
        records.read_all(tmp_path)
