"""The shipped demonstration task: its sizes, and that no label leaks and no two rows are alike."""

import collections
import itertools
import re

import pytest

from knnprompt_jax.tasks import catalogue, sources

ROWS_PER_CLASS = {"train": 56, "dev_subsample": 30}
RUN, MAX_JACCARD = 6, 0.5


@pytest.mark.parametrize("split", ROWS_PER_CLASS)
def test_classes_have_equal_sizes_and_no_text_has_its_label_word(split):
    task = catalogue.get("demo")
    rows = sources.load_rows(task, split)
    assert collections.Counter(row.label for row in rows) == dict.fromkeys(task.labels, ROWS_PER_CLASS[split])
    for row in rows:
        noun = task.label_words[task.class_index(row.label)].strip()
        assert not {noun, f"{noun}s", f"{noun}es", re.sub("y$", "ies", noun)} & set(words(row)), row


def test_no_two_rows_are_alike():
    rows = [row for split in ROWS_PER_CLASS for row in sources.load_rows(catalogue.get("demo"), split)]
    texts = [words(row) for row in rows]
    runs = [{tuple(text[start : start + RUN]) for start in range(len(text) - RUN + 1)} for text in texts]
    assert max(collections.Counter(itertools.chain(*runs)).values()) == 1
    vocabularies = [{word for word in text if len(word) >= 4} for text in texts]
    assert all(len(a & b) < MAX_JACCARD * len(a | b) for a, b in itertools.combinations(vocabularies, 2))


def words(row):
    return re.findall(r"[^\W_]+", row.fields["sentence"].lower())
