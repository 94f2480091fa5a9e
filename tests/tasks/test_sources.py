"""Rows of published tasks from folders and through the `datasets` library, and what is said where there are none."""

import dataclasses
import json
from unittest import mock

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.tasks import catalogue, sources
from knnprompt_jax.tasks.catalogue import HubSource
from knnprompt_jax.tasks.task import Task

datasets = pytest.importorskip("datasets")

TASK = Task("mood", ("sentence",), "{sentence}\nMood:", ("bad", "good"), ("bad", "good"))


def test_published_layout(tmp_path):
    (tmp_path / "mood").mkdir()
    rows = [{"sentence": "dull ", "label": "bad"}, {"sentence": "bright \u2028 day", "label": "good", "idx": 5}]
    path = tmp_path / "mood" / "train_subset.jsonl"
    path.write_text("\ufeff\n" + "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows))
    first, second = sources.load_rows(TASK, "train", data_dir=str(tmp_path))
    assert (first.fields, first.label, first.place) == ({"sentence": "dull "}, "bad", f"{path}:2")
    assert (second.fields, second.extra, second.row) == ({"sentence": "bright \u2028 day"}, {"idx": 5}, 1)


@pytest.mark.parametrize(
    ("data_dir", "message"),
    [
        ("{}", r"mood: no file dev\.jsonl; give --data_dir=DIR .*, --hub"),
        ("{}/nowhere", "nowhere/mood: no file dev.jsonl; give --data_dir=DIR .*, --hub"),
        (None, "task 'mood': its rows are not included; give --data_dir="),
    ],
)
def test_missing_rows_say_what_to_give(tmp_path, data_dir, message):
    (tmp_path / "mood").mkdir()
    (tmp_path / "mood" / "train.jsonl").write_text("")
    with pytest.raises(errors.UserError, match=message):
        sources.load_rows(TASK, "dev", data_dir=data_dir and data_dir.format(tmp_path))


@pytest.mark.parametrize("name", catalogue.PAPER_TASKS)
def test_every_published_evaluation_row_loads(shared, name):
    examples = sources.load_rows(catalogue.get(name), "dev_subsample", data_dir=str(shared / "data"))
    assert len(examples) == (56 if name == "cb" else 256)


def make_source(dataset, **options):
    return HubSource(
        dataset=str(dataset),
        columns={"sentence": "text"},
        labels={0: "bad", 1: "good"},
        splits={"train": "train", "dev": "test"},
        **options,
    )


@pytest.fixture
def dataset_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "mood"
    folder.mkdir()
    for split, labels in {"train": [0, 1, 1], "test": [-1, -1]}.items():
        rows = [{"text": f"{split} {i}", "label": label, "id": i} for i, label in enumerate(labels)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_dataset_folder_is_read_under_our_names(dataset_folder):
    source = make_source(dataset_folder)
    examples = sources.load_rows(TASK, "train", hub_source=source)
    assert [(example.fields["sentence"], example.label) for example in examples] == [
        ("train 0", "bad"),
        ("train 1", "good"),
        ("train 2", "good"),
    ]
    assert examples[1].place == f"{dataset_folder}/train:1"
    for split, changes, message in [
        ("validation", {}, "no split 'validation'; choose from train, dev"),
        ("train", {"columns": {"sentence": "sentence"}}, "has no column 'sentence'; it has text, label, id"),
        ("train", {"labels": {0: "bad"}}, "train:1: unknown label '1'; choose from bad, good"),
        ("dev", {}, "dev:0: no label column 'label', only sentence"),
    ]:
        with pytest.raises(errors.UserError, match=message):
            sources.load_rows(TASK, split, hub_source=dataclasses.replace(source, **changes))


def test_a_failure_of_the_library_is_one_line(monkeypatch):
    monkeypatch.setattr(datasets, "load_dataset", mock.Mock(side_effect=OSError("busy\nlater")))
    with pytest.raises(errors.UserError, match="^cannot load data set 'owner/mood': busy later; see --data_dir=$"):
        sources.load_rows(TASK, "train", hub_source=make_source("owner/mood"))
