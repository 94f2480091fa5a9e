"""Few-shot splits against the published procedure, redone step by step on plain rows; and defects of rows."""

import random
import re

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.tasks import catalogue, splits
from knnprompt_jax.tasks.table_file import Table
from knnprompt_jax.tasks.task import Example, Task

TASK = Task("mood", ("sentence",), "{sentence}\nMood:", ("0", "1", "2"), ("bad", "good", "odd"))


def published_sample(rows, shots, seed, exclude=()):
    """METHODS.md, point 10, with the global generator."""
    rows = list(rows)
    for row in exclude:
        rows.remove(row)
    random.seed(seed)
    by_class = {}
    for row in rows:
        by_class.setdefault(row["label"], []).append(row)
    drawn = []
    for members in by_class.values():
        drawn += random.sample(members, min(shots, len(members)))
    random.shuffle(drawn)
    return drawn


def as_row(example):
    return dict(example.fields) | {"label": example.label} | dict(example.extra)


def assert_as_published(task, rows, examples, shots, demo_shots, seed):
    demonstrations = published_sample(rows, demo_shots, seed)
    anchors = published_sample(rows, shots - demo_shots, seed, exclude=demonstrations)
    state = random.getstate()
    split = splits.draw(examples, task, shots=shots, demo_shots=demo_shots, seed=seed)
    assert random.getstate() == state, "the global generator is left alone"
    assert [as_row(example) for example in split.demonstrations] == demonstrations
    assert [as_row(example) for example in split.anchors] == anchors


def make_examples(rows):
    return [Example({"sentence": row["sentence"]}, row["label"], index) for index, row in enumerate(rows)]


def repetitive_rows(seed):
    generator = random.Random(seed)
    return [{"sentence": generator.choice("abcde"), "label": generator.choice("0112")} for _ in range(83)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shots, demo_shots", [(3, 0), (29, 11), (400, 13)])
def test_repeated_rows_are_drawn_as_published(seed, shots, demo_shots):
    rows = repetitive_rows(seed)
    assert_as_published(TASK, rows, make_examples(rows), shots, demo_shots, seed)


@pytest.mark.parametrize("name, shots, demo_shots", [("mpqa", 1024, 32), ("cb", 32, 2)])
def test_real_rows_are_drawn_as_published(shared, name, shots, demo_shots):
    task = catalogue.get(name)
    path = shared / "data" / name / "train.jsonl"
    rows = [row for _, row in Table(str(path)).rows()]
    examples = catalogue.load_rows(task, "train", data_dir=str(shared / "data"))
    for seed in (1, 5):
        assert_as_published(task, rows, examples, shots, demo_shots, seed)


def test_class_sizes_are_counted_and_short_classes_named():
    rows = [{"sentence": str(i), "label": label} for i, label in enumerate("0" * 7 + "1" * 2 + "2" * 5)]
    split = splits.draw(make_examples(rows), TASK, shots=5, demo_shots=2, seed=1)
    assert dict(split.class_counts) == {"0": (7, 2, 3), "1": (2, 2, 0), "2": (5, 2, 3)}
    (warning,) = split.warnings
    assert "class '1' (good) has 2 train rows of the 5 asked for: 2 are demonstrations, 0 anchors" in warning


def test_all_rows_are_used_and_at_most_half_of_a_class_are_demonstrations():
    rows = [{"sentence": str(i), "label": label} for i, label in enumerate("0" * 7 + "1" * 3 + "2")]
    split = splits.draw(make_examples(rows), TASK, shots=splits.ALL_ROWS, demo_shots=2, seed=1)
    assert dict(split.class_counts) == {"0": (7, 2, 5), "1": (3, 1, 2), "2": (1, 0, 1)}
    assert (split.shots, split.warnings) == (7, ())


@pytest.mark.parametrize(
    "shots, demo_shots, message",
    [
        (0, 0, "shots=0"),
        (splits.ALL_ROWS, -1, "demo_shots=-1"),
        (4, 1, r"no train row has the label '2' \(odd\)"),
        (4, 4, "shots=4, demo_shots=4: choose"),
    ],
)
def test_impossible_shots_are_refused(shots, demo_shots, message):
    rows = [row for row in repetitive_rows(0) if row["label"] != "2"]
    with pytest.raises(errors.UserError, match=message):
        splits.draw(make_examples(rows), TASK, shots=shots, demo_shots=demo_shots, seed=1)


PAIRS = (("a", "0"), ("b", "1"), (" A", "0"), ("c", "0"), ("C", "1"), ("d", "0"), ("c", "0"))
TRAIN = [Example({"sentence": text}, label, row) for row, (text, label) in enumerate(PAIRS)]
EVALUATION = [Example({"sentence": text}, "0") for text in "deD"]


def test_defects_are_counted_without_case_and_blanks_and_removed():
    assert splits.describe_defects(TRAIN, EVALUATION, with_places=False) == (
        "2 of 3 evaluation texts also occur in train; 3 train rows repeat a text; 1 text has conflicting labels"
    )
    expected = "1 train row repeats a text: row 2 ('0') repeats row 0 ('0')"
    assert splits.describe_defects(TRAIN[:3], EVALUATION) == expected, "zero counts are left out"
    left = splits.drop_defects(TRAIN, EVALUATION)
    assert [example.row for example in left] == [0, 1] and not splits.describe_defects(left, EVALUATION)


def test_texts_of_several_fields_are_compared_in_any_order():
    first, second = (Example({"a": a, "b": b}, "x", place=f"rows.csv:{a}") for a, b in ("xy", "yx"))
    other = Example({"a": "X ", "b": "y"}, "z", 7)
    expected = "labels: row 7 ('z') repeats line x ('x'); line y ('x') repeats line x ('x')"
    assert splits.describe_defects([first, second, other]).endswith(expected), "contradictions come first"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["Wet", "wet"] * 2, ["differ only in spelling .*: 'Wet' .2., 'wet' .2."]),
        (
            ["a b", "a_ b.", "'A\u0308'", "\u00e4", "1", "01", "1.0", "-1", "1.05"],
            ["b", "\u00e4", "'01' .1., '1.0' .1"],
        ),
        (["Wet", "dry", "Wet, dry", "dry|wet"], ["join other labels .*'Wet, dry', 'dry.wet'"]),
        (["a", "b", "a, d", "b, d", "f; g", "f; h", "c e", "a and c e", "a->b"], ["'a, d', 'b, d', 'a and .* 'a->b'"]),
        (["person", "pers\u043en", "place"], ["'person' .1., 'pers\u043en' .1."]),
        ([*"abab", "60"], ["labels of a single row.*: '60'"]),
        (["basic", "basic", "plus", "365"], []),
        (["B", "\u0412"], ["'B' .1., '\u0412' .1."]),
        (["a", "a+", "a, c", "EUR/USD", "USD/EUR", "credit card", "debit card", "credit", "1", "1.5", "5", "?"], []),
    ],
)
def test_labels_that_are_probably_mistakes(labels, expected):
    found = list(splits.label_warnings([Example({"text": "a"}, label) for label in labels]))
    assert len(found) == len(expected) and all(map(re.search, expected, found)), found


@pytest.mark.parametrize(
    ("name", "expected"), [("mpqa", "^1646 train .*; 64 texts"), ("trec", "^72 train rows repeat a text$")]
)
def test_the_published_files_have_the_known_defects(shared, name, expected):
    task, data_dir = catalogue.get(name), str(shared / "data")
    train = catalogue.load_rows(task, "train", data_dir=data_dir)
    evaluation = catalogue.load_rows(task, "dev_subsample", data_dir=data_dir)
    assert re.search(expected, splits.describe_defects(train, evaluation, with_places=False))
