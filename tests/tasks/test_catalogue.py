"""The declared tasks, to the character, and declarations in files."""

import json

import pytest
import yaml

from knnprompt_jax.common import errors
from knnprompt_jax.tasks import catalogue
from knnprompt_jax.tasks.task import Example, Task

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


@pytest.mark.parametrize(
    "words", [LINES["label_words"], "{01: outage, 2.0: login, no: billing}", "[billing, outage, login]"]
)
def test_labels_like_no_and_01_stay_strings(tmp_path, words):
    assert catalogue.get(write(tmp_path, label_words=words)) == Task(
        name="support",
        fields=("title", "body"),
        template="{title}\n\nText: {body}\nTeam:",
        labels=("no", "01", "2.0"),
        label_words=("billing", "outage", "login"),
    )


@pytest.mark.parametrize("suffix", catalogue.SUFFIXES)
def test_a_published_name_needs_the_published_task(tmp_path, suffix):
    path = tmp_path / f"mr{suffix}"
    content = yaml.load((catalogue.demo_folder() / "../../tasks/published/mr.yaml").read_bytes(), yaml.BaseLoader)
    path.write_text(json.dumps(content))
    assert catalogue.get(str(path)) == catalogue.get("mr")
    path.write_text(json.dumps(content | {"label_words": ["bad", "good"]}))
    with pytest.raises(errors.UserError, match=f"mr{suffix}: 'mr' is the name of one of this package's tasks"):
        catalogue.get(str(path))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({"colour": "red"}, "needs the keys fields, .* it has fields, template, labels, label_words, colour"),
        ({"label_words": "{no: a, 01: b, 3: c}"}, "'labels' and 'label_words' have different labels"),
        ({"template": "[a]"}, "'template' should be a str of texts"),
        ({"fields": "[title, body"}, "cannot read the task declaration: .*line 1"),
        ({"name": "own"}, "'own' is the name of one of this package's tasks; give yours another `name:`"),
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


def test_rows_on_the_hub(tmp_path):
    path = write(tmp_path, hub="{dataset: us/support, columns: {title: t, body: b}, labels: {0: no, x: 01, 7: '2.0'}}")
    source = catalogue.hub_source(path)
    assert (source.dataset, source.columns, source.label_column) == ("us/support", {"title": "t", "body": "b"}, "label")
    assert source.labels == {"0": "no", 0: "no", "x": "01", "7": "2.0", 7: "2.0"}
    assert source.splits == {"train": "train", "dev": "dev", "test": "test"}


@pytest.mark.parametrize(
    ("hub", "message"),
    [
        (None, "'hub' is not valid: .*missing .*dataset"),
        ("{dataset: a, columns: {title: t}}", "'hub' is not valid: it should have a column for each field"),
    ],
)
def test_errors_in_hub(tmp_path, hub, message):
    with pytest.raises(errors.UserError, match=f"support.yaml: {message}"):
        catalogue.hub_source(write(tmp_path, hub=hub))
