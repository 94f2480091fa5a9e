"""The shipped demonstration task: its sizes, its labels, that no label leaks and that no two rows are alike."""

import collections
import importlib.resources
import itertools
import json
import re

import pytest

ROWS_PER_CLASS = {"train": 56, "dev_subsample": 30}
WORDS_PER_ROW = range(12, 36)
RUN = 6
MAX_JACCARD = 0.5
FOLDER = importlib.resources.files("knnprompt_jax") / "demo" / "task"

Row = dict[str, str]


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def inflections(noun: str) -> set[str]:
    return {noun, f"{noun}s", f"{noun}es", re.sub("y$", "ies", noun)}


def runs(text: str) -> set[tuple[str, ...]]:
    tokens = words(text)
    return {tuple(tokens[start : start + RUN]) for start in range(len(tokens) - RUN + 1)}


@pytest.fixture(scope="module")
def task() -> dict:
    return json.loads((FOLDER / "task.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Row]]:
    files = {split: (FOLDER / f"{split}.jsonl").read_text(encoding="utf-8") for split in ROWS_PER_CLASS}
    return {split: [json.loads(line) for line in text.splitlines()] for split, text in files.items()}


@pytest.fixture(scope="module")
def texts(splits) -> list[str]:
    return [row["sentence"] for rows in splits.values() for row in rows]


def test_label_words_are_distinct_single_words(task):
    label_words = [task["label_words"][label] for label in task["labels"]]
    assert list(task["label_words"]) == task["labels"] == list("012345")
    assert len(set(label_words)) == len(label_words)
    assert all(re.fullmatch(r"[a-z]+", word) for word in label_words)


@pytest.mark.parametrize("split", ROWS_PER_CLASS)
def test_rows_of_a_split(task, splits, split):
    """Classes are of equal size and interleaved; texts are stripped lines that do not contain their label word."""
    labels = [row["label"] for row in splits[split]]
    assert collections.Counter(labels) == dict.fromkeys(task["labels"], ROWS_PER_CLASS[split])
    assert max(len(list(group)) for _, group in itertools.groupby(labels)) <= 6
    for row in splits[split]:
        assert set(row) == {*task["fields"], "label"}
        assert row["sentence"] == " ".join(row["sentence"].split()), row
        assert len(row["sentence"].split()) in WORDS_PER_ROW, row
        assert not inflections(task["label_words"][row["label"]]) & set(words(row["sentence"])), row


def test_no_two_rows_share_a_run_of_words(texts):
    counts = collections.Counter(run for text in texts for run in runs(text))
    assert [run for run, count in counts.items() if count > 1] == []


def test_no_two_rows_are_near_duplicates(texts):
    vocabularies = [{word for word in words(text) if len(word) >= 4} for text in texts]
    pairs = itertools.combinations(vocabularies, 2)
    assert [(a, b) for a, b in pairs if len(a & b) >= MAX_JACCARD * len(a | b)] == []
