"""Packed records: the same results, reports and bytes, without facts of the machine."""

import dataclasses
import gzip

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.report import records
from tests.study import small_world as conftest
from tools import pack_records


def made(seed: int, **fields) -> records.Record:
    record = conftest.make_record(experiment="distance", seed=seed, shots=32, file_name=f"{seed}.json", **fields)
    counts = {label: {"word": label, "train": 9, "demonstrations": 2, "anchors": 6} for label in ("1", "10", "0")}
    options = {"encoder": "/home/someone/minilm/model", "k": 3}
    outcome = {"true": ("10", "0", "1", "1"), "predicted": ("10", "1", "1", "0"), "candidates": (0.25, 0.5)}
    settings, seconds = {"options": options}, {"method": 12.5}
    return dataclasses.replace(record, **outcome, class_counts=counts, settings=settings, seconds=seconds)


def test_a_packed_file_gives_the_records_back_without_facts_of_the_machine(tmp_path):
    path = tmp_path / "some.jsonl.gz"
    written = [made(seed) for seed in (7, 3)]
    for record in written:
        records.write(tmp_path / "results" / "distance", record)
    assert pack_records.pack([tmp_path / "results"], path) == 2
    first, second = records.read_all(path)
    assert (first.seed, second.seed) == (3, 7)
    assert first.settings["options"] == {"encoder": "minilm/model", "k": 3}
    assert first == dataclasses.replace(written[1], settings=first.settings, seconds={}, environment={})
    text = gzip.decompress(path.read_bytes()).decode()
    assert '"true":[1,2,0,0]' in text and "someone" not in text and "12.5" not in text
    before = path.read_bytes()
    pack_records.write(path, [written[1], written[0]])
    assert path.read_bytes() == before


def test_new_records_join_those_of_a_packed_file_and_replace_the_same_run(tmp_path):
    path = tmp_path / "some.jsonl.gz"
    pack_records.write(path, [made(3), made(7)])
    for record in (dataclasses.replace(made(7), accuracy=0.25), made(11)):
        records.write(tmp_path / "results" / "distance", record)
    assert pack_records.pack([path, tmp_path / "results"], path) == 3
    accuracies = {each.seed: each.accuracy for each in records.read_all(path)}
    assert accuracies == {11: made(11).accuracy, 3: made(3).accuracy, 7: 0.25}


def test_damaged_and_empty_files_are_refused(tmp_path):
    path = tmp_path / "some.jsonl.gz"
    pack_records.write(path, [made(1)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(errors.UserError, match="some.jsonl.gz: not a record"):
        records.read_all(path)
    with pytest.raises(errors.UserError, match="nothing: not a record"):
        pack_records.pack([tmp_path / "nothing"], path)
