"""Repeated and conflicting texts."""

import pytest

from knnprompt_jax.tasks import catalogue, defects, sources
from knnprompt_jax.tasks.task import Example

PAIRS = (("a", "0"), ("b", "1"), ("a", "0"), ("c", "0"), ("c", "1"), ("d", "0"), ("c", "0"))
TRAIN = [Example({"sentence": text}, label, row) for row, (text, label) in enumerate(PAIRS)]
EVALUATION = [Example({"sentence": text}, "0") for text in "deD"]


def test_defects_are_counted_over_exact_texts_and_removed():
    found = defects.find(TRAIN, EVALUATION)
    assert found == defects.Defects(num_eval=3, eval_in_train=1, repeated=3, conflicting=1)
    assert str(found) == (
        "1 of 3 evaluation texts also occur in train; 3 train rows repeat a text; 1 text has conflicting labels"
    )
    assert str(defects.find(TRAIN[:3], EVALUATION)) == "1 train row repeats a text", "zero counts are left out"
    left = defects.remove(TRAIN, EVALUATION)
    assert [example.row for example in left] == [0, 1] and not defects.find(left, EVALUATION)


@pytest.mark.parametrize("name, expected", [("mpqa", (256, 56, 1871, 73)), ("trec", (256, 7, 71, 0))])
def test_the_published_files_have_the_known_defects(shared, name, expected):
    task, data_dir = catalogue.get(name), str(shared / "data")
    train = sources.load_rows(task, "train", data_dir=data_dir, restore_dropped=True)
    found = defects.find(train, sources.load_rows(task, "dev_subsample", data_dir=data_dir))
    assert found == defects.Defects(*expected)
