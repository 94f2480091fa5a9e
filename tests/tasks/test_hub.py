"""Rows through the `datasets` library: a folder that it can load, and failures."""

import dataclasses
import json
from unittest import mock

import pytest
from huggingface_hub.errors import HfHubHTTPError

from knnprompt_jax import errors
from knnprompt_jax.tasks import hub, sources
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import Task

datasets = pytest.importorskip("datasets")

TASK = Task("mood", ("sentence",), "{sentence}\nMood:", ("bad", "good"), ("bad", "good"))


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
    examples = sources.load_rows(TASK, "train", hub_source=make_source(dataset_folder))
    assert [(example.fields["sentence"], example.label) for example in examples] == [
        ("train 0", "bad"),
        ("train 1", "good"),
        ("train 2", "good"),
    ]
    assert examples[1].place == f"{dataset_folder}/train:1"


def test_unknown_splits_columns_and_labels_list_the_choices(dataset_folder):
    source = make_source(dataset_folder)
    for split, changes, message in [
        ("validation", {}, "no split 'validation'; choose from train, dev"),
        ("train", {"columns": {"sentence": "sentence"}}, "has no column 'sentence'; it has text, label, id"),
        ("train", {"labels": {0: "bad"}}, "train:1: unknown label 1; choose from 0"),
        (
            "dev",
            {},
            "dev:0: no label column 'label', only sentence: name it with --label_column=, or choose a file with labels",
        ),
    ]:
        with pytest.raises(errors.UserError, match=message):
            sources.load_rows(TASK, split, hub_source=dataclasses.replace(source, **changes))


@pytest.mark.parametrize(
    ("status", "advice"),
    [(503, "the Hub cannot be read (HfHubHTTPError: busy): give a local folder"), (401, "nothing public on the Hub")],
)
def test_failures_give_advice(monkeypatch, status, advice):
    def fail(*_, **__):
        raise OSError("wrapped") from HfHubHTTPError("busy\nlater", response=mock.Mock(status_code=status))

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(errors.UserError) as caught:
        hub.read(make_source("owner/mood", revision="main"), "train")
    assert str(caught.value).startswith(f"cannot load data set 'owner/mood', revision 'main': {advice}")
