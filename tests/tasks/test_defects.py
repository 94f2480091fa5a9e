"""Repeated and conflicting texts, and labels that are probably mistakes."""

import re

import pytest

from knnprompt_jax.tasks import catalogue, defects, sources
from knnprompt_jax.tasks.task import Example

PAIRS = (("a", "0"), ("b", "1"), (" A", "0"), ("c", "0"), ("C", "1"), ("d", "0"), ("c", "0"))
TRAIN = [Example({"sentence": text}, label, row) for row, (text, label) in enumerate(PAIRS)]
EVALUATION = [Example({"sentence": text}, "0") for text in "deD"]


def test_defects_are_counted_without_case_and_blanks_and_removed():
    assert defects.describe(TRAIN, EVALUATION) == (
        "2 of 3 evaluation texts also occur in train; 3 train rows repeat a text; 1 text has conflicting labels"
    )
    assert defects.describe(TRAIN[:3], EVALUATION) == "1 train row repeats a text", "zero counts are left out"
    left = defects.drop(TRAIN, EVALUATION)
    assert [example.row for example in left] == [0, 1] and not defects.describe(left, EVALUATION)


def test_texts_of_several_fields_are_compared_in_any_order():
    first, second = (Example({"a": a, "b": b}, "x", place=f"rows.csv:{a}") for a, b in ("xy", "yx"))
    assert defects.places([first, second]) == "line y repeats line x"
    assert defects.places([first, Example({"a": "X ", "b": "y"}, "z", 7)]) == "row 7 ('z') contradicts line x ('x')"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["a", "b", "b", "c"], []),
        (["Wet", "wet", "Wet", "dry"], ["differ only in case and blanks .*: 'Wet' .2., 'wet' .1."]),
        (["a b", "a  b"], ["differ only in case and blanks"]),
        (
            ["billing", "outage", "billing, outage", "Outage|Billing"],
            ["join other labels .*'billing, outage', 'Outage|B"],
        ),
        (["a", "a+", "b/c", "c"], []),
    ],
)
def test_labels_that_are_probably_mistakes(labels, expected):
    found = list(defects.label_warnings([Example({"text": "a"}, label) for label in labels]))
    assert len(found) == len(expected) and all(map(re.search, expected, found)), found


@pytest.mark.parametrize(
    ("name", "expected"), [("mpqa", "^1646 train .*; 64 texts"), ("trec", "^72 train rows repeat a text$")]
)
def test_the_published_files_have_the_known_defects(shared, name, expected):
    task, data_dir = catalogue.get(name), str(shared / "data")
    train = sources.load_rows(task, "train", data_dir=data_dir)
    evaluation = sources.load_rows(task, "dev_subsample", data_dir=data_dir)
    assert re.search(expected, defects.describe(train, evaluation))
