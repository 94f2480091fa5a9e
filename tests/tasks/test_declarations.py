"""Tasks in YAML files: values as written, and errors with file and key."""

import importlib.resources
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from knnprompt_jax import errors
from knnprompt_jax.tasks import catalogue
from knnprompt_jax.tasks.task import Task

LINES = {
    "fields": "[title, body]",
    "template": "|\n  {title}\n\n  Text: {body}\n  Team:",
    "labels": "[no, 01, 2.0]",
    "label_words": "{no: billing, 01: outage, 2.0: login}",
}


def write(folder, **lines):
    path = folder / "support.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in (LINES | lines).items() if value is not None))
    return path


@pytest.mark.parametrize(
    "words", [LINES["label_words"], "{01: outage, 2.0: login, no: billing}", "[billing, outage, login]"]
)
def test_labels_like_no_and_01_stay_strings(tmp_path, words):
    task = catalogue.get(str(write(tmp_path, label_words=words)))
    assert task == Task(
        name="support",
        fields=("title", "body"),
        template="{title}\n\nText: {body}\nTeam:",
        labels=("no", "01", "2.0"),
        label_words=("billing", "outage", "login"),
    )


@pytest.mark.parametrize("suffix", catalogue.SUFFIXES)
def test_a_published_name_needs_the_published_task(tmp_path, suffix):
    published = importlib.resources.files("knnprompt_jax") / "tasks" / "published" / "mr.yaml"
    path, content = tmp_path / f"mr{suffix}", yaml.safe_load(published.read_text())
    texts = {"labels": [*map(str, content["labels"])]} if suffix == ".json" else {}
    path.write_text(json.dumps(content | texts))
    assert catalogue.get(str(path)) == catalogue.get("mr")
    path.write_text(json.dumps(content | texts | {"label_words": ["bad", "good"]}))
    with pytest.raises(errors.UserError, match=f"mr{suffix}: 'mr' is the name of one of this package's tasks"):
        catalogue.get(str(path))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            {"colour": "red"},
            r"support.yaml: 'colour' is not a key of a task declaration; choose from fields, template",
        ),
        ({"labels": None}, r"support.yaml: the task declaration lacks 'labels'"),
        ({"label_words": "[a, b, c]\nlabels: [x]"}, r"support.yaml: .*'labels' is given twice"),
        ({"label_words": "{no: a, 01: b, 01: c}"}, r"support.yaml: .*'01' is given twice"),
        ({"label_words": "{no: a, 01: b, 3: c}"}, r"support.yaml: 'label_words' and labels differ in '2.0'"),
        ({"label_words": "{no: [a], 01: b, 2.0: c}"}, r"support.yaml: 'label_words' should be a list of words, or"),
        ({"template": "[a]"}, r"support.yaml: 'template' should be a text"),
        ({"fields": "[title, body"}, r"support.yaml: not a task declaration: .*line 1"),
        ({"[1]": "2"}, r"support.yaml: .*found unhashable key"),
        ({"name": "mr"}, r"support.yaml: 'mr' is the name of one of this package's tasks; give yours another `name:`"),
        (
            {"name": "own"},
            r"support.yaml: 'own' is the name of one of this package's tasks; give yours another `name:`",
        ),
        ({"name": "../up"}, r"support.yaml: 'name' should be valid as the name of a file"),
        ({"name": '".."'}, r"support.yaml: 'name' should be valid as the name of a file"),
        ({"name": '"a\\0"'}, r"support.yaml: 'name' should be valid as the name of a file"),
        ({"fields": "[" * 200_000}, r"support.yaml: not a task declaration: nested more than 100 deep"),
        ({"labels": "[" * 5000}, r"support.yaml: not a task declaration"),
        ({"labels": '!!python/object/apply:os.system ["touch here"]'}, r"differ in '01'"),  # It runs nothing.
    ],
)
def test_errors_name_file_and_key(tmp_path, lines, message):
    with pytest.raises(errors.UserError, match=message):
        catalogue.get(str(write(tmp_path, **lines)))


def test_rows_on_the_hub(tmp_path):
    path = write(tmp_path, hub="{dataset: us/support, columns: {title: t, body: b}, labels: {0: no, x: 01, 7: '2.0'}}")
    source = catalogue.hub_source(str(path))
    assert (source.dataset, source.columns, source.label_column) == ("us/support", {"title": "t", "body": "b"}, "label")
    assert source.labels == {"0": "no", 0: "no", "x": "01", "7": "2.0", 7: "2.0"}
    assert source.splits == {"train": "train", "dev": "dev", "test": "test"}


@pytest.mark.parametrize(
    ("hub", "message"),
    [
        (None, "support.yaml: 'hub' should have the key dataset"),
        ("{dataset: a, colour: b}", "support.yaml: 'hub' has the unknown key 'colour'; choose from dataset, config"),
        ("{dataset: a, columns: {title: t}}", "support.yaml: 'hub' and the task differ in 'body'"),
        ("{dataset: a, splits: [train]}", "support.yaml: 'hub' should have names to names at splits"),
        ("{dataset: a, config: [b]}", "support.yaml: 'hub' should have a word at config"),
    ],
)
def test_errors_in_hub(tmp_path, hub, message):
    with pytest.raises(errors.UserError, match=message):
        catalogue.hub_source(str(write(tmp_path, hub=hub)))


@settings(max_examples=50, deadline=None)
@given(content=st.text(alphabet=st.sampled_from("abz01 :-[]{}'\"\n|>&*!#%,?\\\u2028\x00é"), max_size=60))
def test_any_file_is_read_or_refused_in_one_line(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "task.yaml"
    whole = "".join(f"{key}: {value}\n" for key, value in LINES.items()).encode()
    path.write_bytes(whole + content.encode())
    try:
        assert catalogue.get(str(path)).fields == ("title", "body")
    except errors.UserError as error:
        assert str(path) in str(error)


def test_only_regular_files_of_bounded_size_are_read(tmp_path, monkeypatch):
    (tmp_path / "endless.yaml").symlink_to("/dev/zero")
    with pytest.raises(errors.UserError, match="endless.yaml: not a regular file"):
        catalogue.get(str(tmp_path / "endless.yaml"))
    monkeypatch.setattr(catalogue, "_MAX_BYTES", 50)
    with pytest.raises(errors.UserError, match="support.yaml: more than 50 bytes"):
        catalogue.get(str(write(tmp_path)))


def test_the_checks_of_many_labels_take_linear_time():
    labels = tuple(f"class {number}" for number in range(100_003))
    task = Task("many", ("text",), "{text}:", labels, labels)
    with pytest.raises(errors.UserError, match="a:1: unknown label 'Class 5'"):
        task.label_of("a:1", "Class 5")
    assert task.label_of("a:1", "Class 5", merges=True) == "class 5"


def test_labels_of_a_declaration_that_look_alike_are_named(tmp_path, caplog):
    catalogue.get(str(write(tmp_path, labels='["x", "x\\u200b", "y"]', label_words="[a, b, c]")))
    assert "support.yaml: labels that differ only in" in caplog.text and "'x' (1), 'x\\u200b' (1)" in caplog.text
