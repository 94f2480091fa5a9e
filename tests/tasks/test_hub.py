"""Rows through the `datasets` library: a folder it can load, and its failures."""

import json
import sys

import pytest

from knnprompt_jax import errors
from knnprompt_jax.tasks import catalogue, sources
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import Task

datasets = pytest.importorskip("datasets")

TASK = Task("mood", ("sentence",), "{sentence}\nMood:", ("bad", "good"), ("bad", "good"))


def make_source(dataset):
    return HubSource(
        dataset=str(dataset),
        columns={"sentence": "text"},
        labels={0: "bad", 1: "good"},
        splits={"train": "train", "dev": "test"},
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
    examples = sources.load_rows(TASK, "train", hub_source=make_source(dataset_folder))
    assert [(example.fields["sentence"], example.label) for example in examples] == [
        ("train 0", "bad"),
        ("train 1", "good"),
        ("train 2", "good"),
    ]
    assert examples[1].source == f"{dataset_folder}/train:1"


def test_placeholder_labels_count_as_none(dataset_folder):
    with pytest.raises(errors.UserError, match="split 'dev' of task 'mood' is unlabelled"):
        sources.load_rows(TASK, "dev", hub_source=make_source(dataset_folder))


def test_unknown_splits_columns_and_labels_list_the_choices(dataset_folder):
    source = make_source(dataset_folder)
    with pytest.raises(errors.UserError, match="no split 'validation'; choose from train, dev"):
        sources.load_rows(TASK, "validation", hub_source=source)
    with pytest.raises(errors.UserError, match="has no column 'sentence'; it has text, label, id"):
        columns = {"sentence": "sentence"}
        sources.load_rows(TASK, "train", hub_source=HubSource(source.dataset, columns, source.labels, source.splits))
    with pytest.raises(errors.UserError, match="train:1: unknown label 1; choose from 0"):
        sources.load_rows(
            TASK, "train", hub_source=HubSource(source.dataset, source.columns, {0: "bad"}, source.splits)
        )


def test_declared_sources_ask_for_their_dataset(monkeypatch):
    asked = []

    def load_dataset(*arguments, **options):
        asked.append((arguments, options))
        return datasets.Dataset.from_list([{"sentence1": "a", "sentence2": "b", "label": 1, "idx": 0}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    (example,) = sources.load_rows(catalogue.get("rte"), "dev", hub_source=catalogue.hub_source("rte"))
    assert asked == [(("nyu-mll/glue", "rte"), {"split": "validation"})]
    assert (example.fields, example.label) == ({"sentence_1": "a", "sentence_2": "b"}, "not_entailment")


def test_an_unreachable_hub_is_told_with_the_way_out(monkeypatch):
    def load_dataset(*_, **__):
        raise ConnectionError("no route to host\nand a long trace")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        errors.UserError, match=r"ConnectionError: no route to host\); use a local folder.*cache"
    ) as caught:
        sources.load_rows(TASK, "train", hub_source=make_source("someone/mood"))
    assert "\n" not in str(caught.value)


def test_a_missing_library_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(errors.UserError, match="needs the `datasets` library"):
        sources.load_rows(TASK, "train", hub_source=make_source("someone/mood"))
