"""Rows through the `datasets` library: a folder it can load, a Hub on the loopback interface, and their failures."""

import dataclasses
import json

import pytest

from knnprompt_jax import errors
from knnprompt_jax.tasks import hub, sources
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import Task
from tests import hub_server

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
    assert examples[1].source == f"{dataset_folder}/train:1"


def test_unknown_splits_columns_and_labels_list_the_choices(dataset_folder):
    source = make_source(dataset_folder)
    for split, changes, message in [
        ("validation", {}, "no split 'validation'; choose from train, dev"),
        ("train", {"columns": {"sentence": "sentence"}}, "has no column 'sentence'; it has text, label, id"),
        ("train", {"labels": {0: "bad"}}, "train:1: unknown label 1; choose from 0"),
        (
            "dev",
            {},
            "dev:0: has no label column 'label', only sentence: name the column of the labels .* another split",
        ),
    ]:
        with pytest.raises(errors.UserError, match=message):
            sources.load_rows(TASK, split, hub_source=dataclasses.replace(source, **changes))


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A Hub with the data set owner/mood, and empty caches."""
    with hub_server.serving() as server:
        hub_server.connect(server, str(tmp_path / "cache"), monkeypatch)
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", server.url)
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "tables"))
        publish(server, "row")
        yield server


def publish(server, word, **options):
    rows = [{"text": f"{word} {number}", "label": number % 2} for number in range(3)]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    server.repositories["datasets/owner/mood"] = hub_server.Repository(
        {"train.jsonl": content, "test.jsonl": content}, **options
    )


def texts(**options):
    return [row["sentence"] for _, row in hub.read(make_source("owner/mood", **options), "train")]


def test_a_dataset_comes_from_the_hub_by_name_and_revision(server, monkeypatch):
    publish(server, "old", revisions=("v1",))
    commit = server.repositories["datasets/owner/mood"].commit
    assert texts(revision="v1") == texts(revision=commit) == ["old 0", "old 1", "old 2"]
    publish(server, "new", access="private")
    server.fail("HEAD .*/README.md", status=503)  # Asked again.
    monkeypatch.setenv("HF_TOKEN", server.TOKEN)
    assert texts() == ["new 0", "new 1", "new 2"]


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        ({}, 503, "the Hub cannot be read (HfHubHTTPError: Server error '503 Service Unavailable'"),
        ({"revisions": ()}, 0, "the Hub has no such revision of it: give a branch, tag or commit"),
    ],
)
def test_permanent_failures_give_advice(server, options, status, expected):
    publish(server, "row", **options)
    server.fail(".", times=1000 * bool(status), status=status)
    with pytest.raises(errors.UserError) as caught:
        texts(revision="main")
    assert str(caught.value).startswith(f"cannot load data set 'owner/mood', revision 'main': {expected}")
    assert "\n" not in str(caught.value)


def test_the_cache_serves_offline(server, monkeypatch):
    before = texts()
    server.requests.clear()
    for module in (datasets.config, hub_server.constants):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", True)
    assert texts() == before and not server.requests
    with pytest.raises(errors.UserError, match=r"'owner/other'.*OfflineModeIsEnabled.*: give a local folder"):
        hub.read(make_source("owner/other"), "train")
