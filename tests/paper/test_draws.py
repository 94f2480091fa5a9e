"""Draws: the published ones, and those with one class rare."""

import collections

import pytest

from knnprompt_jax import errors
from knnprompt_jax.paper import cells
from knnprompt_jax.runs import inputs
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Task


def counts(rows):
    return tuple(collections.Counter(row.label for row in rows)[label] for label in "01")


def test_a_plain_draw_is_the_published_one(rows):
    published = splits.draw(rows.train, rows.task, shots=9, demo_shots=2, seed=3)
    assert cells.split(rows, cells.Draw(3, 9, 2)) == published


def test_all_shots_may_be_demonstrations(rows):
    split = cells.split(rows, cells.Draw(3, 4, 4))
    assert split.demonstrations == splits.draw(rows.train, rows.task, shots=9, demo_shots=4, seed=3).demonstrations
    assert (split.anchors, split.shots, split.demo_shots) == ((), 4, 4)
    assert split.class_counts["1"] == splits.ClassCounts(19, 4, 0)


@pytest.mark.parametrize(("share", "anchors"), [(0.5, (7, 7)), (0.25, (12, 2)), (1 / 3, (10, 4)), (0.01, (15, 1))])
def test_a_share_is_of_all_train_rows_and_keeps_their_number(rows, share, anchors):
    """Two demonstrations per class are among the 18 rows; the rare class keeps an anchor whatever its share."""
    split, balanced = (cells.split(rows, cells.Draw(3, 9, 2, given)) for given in (share, None))
    assert counts(split.anchors) == anchors and (split.anchors == balanced.anchors) == (share == 0.5)
    assert split.demonstrations == balanced.demonstrations
    assert (split.shots, split.demo_shots) == (9, 2)
    assert split.class_counts["1"] == splits.ClassCounts(19, 2, anchors[1])


@pytest.mark.parametrize(
    ("share", "expected"), [(None, (7, 6)), (0.5, (6, 6)), (0.3, (7, 3)), (0.01, (7, 1)), (0.75, (2, 6))]
)
def test_a_share_leaves_out_rows_to_classify(rows, share, expected):
    kept = cells.evaluation(rows, share, 5)
    assert counts(kept) == expected
    assert [row.row for row in kept] == sorted(row.row for row in kept)
    assert kept == cells.evaluation(rows, share, 5)


def test_a_rare_class_needs_a_task_of_two(rows):
    task = Task("three", ("text",), "{text}:", ("0", "1", "2"), ("no", "yes", "maybe"))
    three = inputs.Rows(task, rows.train, rows.evaluation)
    for ask in (lambda: cells.split(three, cells.Draw(1, 5, 1, 0.25)), lambda: cells.evaluation(three, 0.25, 1)):
        with pytest.raises(errors.UserError, match="task 'three' has 3 classes; choose tasks with two classes"):
            ask()
