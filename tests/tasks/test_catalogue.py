"""The declared tasks, to the character, declarations in files, and rows from folders and the `datasets` library."""

import dataclasses
import json
from unittest import mock

import pytest
import yaml

from knnprompt_jax.common import errors
from knnprompt_jax.tasks import catalogue
from knnprompt_jax.tasks.catalogue import HubSource
from knnprompt_jax.tasks.task import Example, Task

datasets = pytest.importorskip("datasets")

REVIEW = "Review: A\nSentiment:", "0 1", "negative positive"
TOPICS = "company school artist athlete politics transportation building nature village animal plant album film book"
# The query of a row whose fields hold the letters A and B, the labels and their words.
PUBLISHED = {
    **dict.fromkeys(("sst2", "mpqa", "cr", "mr"), REVIEW),
    "sst5": (REVIEW[0], "0 1 2 3 4", "terrible bad okay good great"),
    "subj": ("Input: A\nType:", "0 1", "subjective objective"),
    "agnews": ("input: A\ntype:", "1 2 3 4", "world sports business technology"),
    "dbpedia": ("input: A\ntype:", " ".join(map(str, range(1, 15))), TOPICS),
    "trec": ("Question: A\nType:", "0 1 2 3 4 5", "description entity expression human location number"),
    "cb": ("premise: A\nhypothesis: B\nprediction:", "contradiction entailment neutral", "false true neither"),
    "rte": ("premise: A\nhypothesis: B\nprediction:", "not_entailment entailment", "false true"),
}
LINES = {
    "fields": "[title, body]",
    "template": "|\n  {title}\n\n  Text: {body}\n  Team:",
    "labels": "[no, 01, 2.0]",
    "label_words": "{no: billing, 01: outage, 2.0: login}",
}


def write(folder, **lines):
    path = folder / "support.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in (LINES | lines).items() if value is not None))
    return str(path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_declarations_are_the_published_ones(name):
    """Templates, label words, retrieval texts; the Hub declaration fills the fields and reaches every label."""
    task, source = catalogue.get(name), catalogue.hub_source(name)
    example = Example(fields=dict(zip(task.fields, "AB", strict=False)), label=task.labels[0])
    assert (task.render(example), " ".join(task.labels), " ".join(task.label_words)) == PUBLISHED[name]
    assert task.retrieval_text(example) == ("premise: A. hypothesis: B" if name in ("cb", "rte") else "A")
    assert tuple(source.columns) == task.fields
    assert set(source.labels.values()) == set(task.labels)
    assert {"train", "test"} <= set(source.splits)


@pytest.mark.parametrize("words", ["{01: outage, 2.0: login, no: billing}", "[billing, outage, login]"])
def test_labels_like_no_and_01_stay_strings(tmp_path, words):
    task = catalogue.get(write(tmp_path, label_words=words, descriptions=words))
    assert task == Task(
        name="support",
        fields=("title", "body"),
        template="{title}\n\nText: {body}\nTeam:",
        labels=("no", "01", "2.0"),
        label_words=("billing", "outage", "login"),
        descriptions=("billing", "outage", "login"),
    )
    assert [(row.label, {*row.fields.values()}) for row in task.described()][1] == ("01", {"outage"})
    assert task.digest != catalogue.get(write(tmp_path, label_words=words)).digest


def test_a_published_name_needs_the_published_task(tmp_path):
    path = tmp_path / "mr.json"
    content = yaml.load((catalogue.demo_folder() / "../../tasks/published/mr.yaml").read_bytes(), yaml.BaseLoader)
    path.write_text(json.dumps(content))
    assert catalogue.get(str(path)) == catalogue.get("mr")
    path.write_text(json.dumps(content | {"label_words": ["bad", "good"]}))
    with pytest.raises(errors.UserError, match="mr.json: 'mr' is a task of this package"):
        catalogue.get(str(path))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({"colour": "red"}, "needs the keys fields, .* it has fields, template, labels, label_words, colour"),
        ({"label_words": "{no: a, 01: b, 3: c}"}, "'labels' and 'label_words' have different labels"),
        ({"descriptions": "[a, b]"}, "3 labels but 2 descriptions"),
        ({"template": "[a]"}, "'template' should be a text"),
        ({"fields": "[title, body"}, "cannot read the task declaration: .*line 1"),
        ({"name": "own"}, "'own' is a task of this package"),
    ],
)
def test_errors_name_file_and_key(tmp_path, lines, message):
    with pytest.raises(errors.UserError, match=f"support.yaml: .*{message}"):
        catalogue.get(write(tmp_path, **lines))


def test_unknown_names_list_the_choices():
    with pytest.raises(errors.UserError, match="unknown task 'sst'; choose from sst2, .*trec, sst5, demo"):
        catalogue.get("sst")
    with pytest.raises(errors.UserError, match="none.yaml: cannot read the task declaration: .*No such file"):
        catalogue.get("none.yaml")


def test_hub_declarations(tmp_path):
    path = write(tmp_path, hub="{dataset: us/support, columns: {title: t, body: b}, labels: {0: no, x: 01, 7: '2.0'}}")
    assert catalogue.hub_source(path) == HubSource(
        "us/support",
        columns={"title": "t", "body": "b"},
        labels={"0": "no", 0: "no", "x": "01", "7": "2.0", 7: "2.0"},
        splits={"train": "train", "dev": "dev", "test": "test"},
    )
    with pytest.raises(errors.UserError, match="support.yaml: 'hub' is not valid: .*missing .*dataset"):
        catalogue.hub_source(write(tmp_path))
    with pytest.raises(errors.UserError, match="'hub' is not valid: it should have a column for each field"):
        catalogue.hub_source(write(tmp_path, hub="{dataset: a, columns: {title: t}}"))


MOOD = Task("mood", ("sentence",), "{sentence}\nMood:", ("bad", "good"), ("bad", "good"))


def test_published_layout(tmp_path):
    (tmp_path / "mood").mkdir()
    rows = [{"sentence": "dull ", "label": "bad"}, {"sentence": "bright \u2028 day", "label": "good", "idx": 5}]
    path = tmp_path / "mood" / "train_subset.jsonl"
    path.write_text("\ufeff\n" + "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows))
    first, second = catalogue.load_rows(MOOD, "train", data_dir=str(tmp_path))
    assert (first.fields, first.label, first.place) == ({"sentence": "dull "}, "bad", f"{path}:2")
    assert (second.fields, second.extra, second.row) == ({"sentence": "bright \u2028 day"}, {"idx": 5}, 1)
    with pytest.raises(errors.UserError, match=r"mood: no file dev\.jsonl; give .*/mood/dev.jsonl"):
        catalogue.load_rows(MOOD, "dev", data_dir=str(tmp_path))
    with pytest.raises(errors.UserError, match="task 'mood': its rows are not included; give --train_file and"):
        catalogue.load_rows(MOOD, "dev")


@pytest.mark.parametrize("name", catalogue.PAPER_TASKS)
def test_every_published_evaluation_row_loads(shared, name):
    examples = catalogue.load_rows(catalogue.get(name), "dev_subsample", data_dir=str(shared / "data"))
    assert len(examples) == (56 if name == "cb" else 256)


def test_a_dataset_folder_is_read_under_our_names(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "mood"
    folder.mkdir()
    for split, labels in {"train": [0, 1, 1], "test": [-1, -1]}.items():
        rows = [{"text": f"{split} {i}", "label": label, "id": i} for i, label in enumerate(labels)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = HubSource(str(folder), {"sentence": "text"}, {0: "bad", 1: "good"}, {"train": "train", "dev": "test"})
    examples = catalogue.load_rows(MOOD, "train", hub_source=source)
    assert [example.fields["sentence"] for example in examples] == ["train 0", "train 1", "train 2"]
    assert [example.label for example in examples] == ["bad", "good", "good"]
    assert examples[1].place == f"{folder}/train:1"
    for split, changes, message in [
        ("validation", {}, "no split 'validation' in the task's .splits.; choose from train, dev"),
        ("train", {"columns": {"sentence": "sentence"}}, "cannot load .*'sentence'"),
        ("train", {"labels": {0: "bad"}}, "train:1: unknown label '1'; choose from bad, good"),
        ("dev", {}, "dev:0: no label column 'label', only sentence"),
    ]:
        with pytest.raises(errors.UserError, match=message):
            catalogue.load_rows(MOOD, split, hub_source=dataclasses.replace(source, **changes))
    monkeypatch.setattr(datasets, "load_dataset", mock.Mock(side_effect=OSError("busy\nlater")))
    with pytest.raises(errors.UserError, match="^cannot load .*: busy later; see --data_dir=$"):
        catalogue.load_rows(MOOD, "train", hub_source=source)
