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


def load_rows(split: str) -> list[Row]:
    return [json.loads(line) for line in (FOLDER / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()]


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def inflections(noun: str) -> set[str]:
    return {noun, f"{noun}s", f"{noun}es", re.sub("y$", "ies", noun)}


def runs(text: str) -> set[tuple[str, ...]]:
    tokens = words(text)
    return {tuple(tokens[start : start + RUN]) for start in range(len(tokens) - RUN + 1)}


def long_words(text: str) -> set[str]:
    return {word for word in words(text) if len(word) >= 4}


def jaccard(left: set[str], right: set[str]) -> float:
    return len(left & right) / len(left | right)


@pytest.fixture(scope="module")
def task() -> dict:
    return json.loads((FOLDER / "task.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Row]]:
    return {split: load_rows(split) for split in ROWS_PER_CLASS}


@pytest.fixture(scope="module")
def texts(splits) -> list[str]:
    return [row["sentence"] for rows in splits.values() for row in rows]


def test_label_words_are_distinct_single_words(task):
    label_words = [task["label_words"][label] for label in task["labels"]]
    assert list(task["label_words"]) == task["labels"] == list("012345")
    assert len(set(label_words)) == len(label_words)
    assert all(re.fullmatch(r"[a-z]+", word) for word in label_words)


@pytest.mark.parametrize("split", ROWS_PER_CLASS)
def test_rows_per_class(task, splits, split):
    counts = collections.Counter(row["label"] for row in splits[split])
    assert counts == dict.fromkeys(task["labels"], ROWS_PER_CLASS[split])


@pytest.mark.parametrize("split", ROWS_PER_CLASS)
def test_rows_have_the_declared_fields_and_a_stripped_one_line_text(task, splits, split):
    for row in splits[split]:
        assert set(row) == {*task["fields"], "label"}
        assert row["sentence"], row
        assert row["sentence"] == " ".join(row["sentence"].split()), row
        assert len(row["sentence"].split()) in WORDS_PER_ROW, row


@pytest.mark.parametrize("split", ROWS_PER_CLASS)
def test_no_text_contains_its_own_label_word(task, splits, split):
    for row in splits[split]:
        label_word = task["label_words"][row["label"]]
        assert not inflections(label_word) & set(words(row["sentence"])), row


@pytest.mark.parametrize("split", ROWS_PER_CLASS)
def test_classes_are_interleaved(splits, split):
    longest = max(len(list(group)) for _, group in itertools.groupby(row["label"] for row in splits[split]))
    assert longest <= 6


def test_no_two_rows_share_a_run_of_words(texts):
    counts = collections.Counter(run for text in texts for run in runs(text))
    assert [run for run, count in counts.items() if count > 1] == []


def test_no_two_rows_are_near_duplicates(texts):
    vocabularies = [long_words(text) for text in texts]
    pairs = itertools.combinations(range(len(texts)), 2)
    near = [(texts[a], texts[b]) for a, b in pairs if jaccard(vocabularies[a], vocabularies[b]) >= MAX_JACCARD]
    assert near == []
