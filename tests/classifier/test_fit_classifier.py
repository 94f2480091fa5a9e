"""Draws of demonstrations and the numbers of demonstrations of views."""

import collections
import itertools

import numpy as np
import pytest

from knnprompt_jax.classifier import fit_classifier
from knnprompt_jax.tasks.task import Example
from tests.class_rows import MODEL, TASK, make_model, make_rows


@pytest.mark.parametrize(("demo_shots", "seed"), [*itertools.product([0, 2, 100], [0, 1])])
def test_each_class_gives_demonstrations_and_keeps_half(demo_shots, seed):
    rows = make_rows(61)
    drawn = fit_classifier.draw(rows, demo_shots, seed)
    sizes = collections.Counter(row.label for row in rows)
    counts = collections.Counter(row.label for row in drawn)
    assert all(counts[label] == min(demo_shots, size // 2) for label, size in sizes.items())


def test_rows_per_class_are_drawn_in_their_order():
    rows = make_rows(61)
    drawn = fit_classifier.first_rows(rows, 5, seed=3)
    assert set(collections.Counter(row.label for row in drawn).values()) == {5}
    assert [row.row for row in drawn] == sorted(row.row for row in drawn)
    assert {row.row for row in drawn} < {row.row for row in fit_classifier.first_rows(rows, 6, seed=3)}


def test_rows_at_the_end_do_not_change_how_many_demonstrations_fit():
    rows = [row for row in make_rows(400) if row.label != "2"]
    assert [fit_classifier.shots_that_fit(TASK, given, MODEL) for given in (rows, rows[:300])] == [2, 2]


def test_long_texts_leave_no_room_for_demonstrations():
    rows = [Example({"text": "many words " * 100 + str(row)}, "012"[row % 3], row) for row in range(30)]
    short = make_model(1024)
    assert fit_classifier.shots_that_fit(TASK, rows, short) == 0
    assert fit_classifier.view_shots(TASK, rows, short, "auto", seed=0) == (0,)


@pytest.mark.parametrize(
    ("demo_shots", "expected"), [("auto", (16, 0)), (3, (3,)), ((0, 2, 2), (2, 0)), (10**6, (20,)), (np.int64(1), (1,))]
)
def test_the_views_of_requested_demonstrations(demo_shots, expected):
    rows = [Example({"text": f"t{row}"}, "012"[row % 3], row) for row in range(60)]
    assert fit_classifier.view_shots(TASK, rows, MODEL, demo_shots, seed=0) == expected
