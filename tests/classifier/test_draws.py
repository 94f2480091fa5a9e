"""Draws of demonstrations: from each class, reproducible, and rarely changed by a few new rows."""

import collections
import itertools
import types

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax import rules
from knnprompt_jax.classifier import draws
from knnprompt_jax.rules import evidence
from knnprompt_jax.settings.classifiers import AutoOptions
from knnprompt_jax.tasks.task import Example

TASK = kp.Task("many", ("text",), "{text}\nIt is", ("0", "1", "2"), ("bad", "good", "fair"))
MODEL = types.SimpleNamespace(tokenize=lambda texts: [list(text.encode()) for text in texts], context=8192)


def make_rows(count, seed=0):
    """Return rows of three classes of unequal sizes."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, count, p=[0.5, 0.3, 0.2]).astype(str)
    return [Example({"text": f"{seed} says {rng.integers(10**9)}"}, labels[row], row) for row in range(count)]


def prompts_of(rows, seed):
    """Return the texts of all prompts that a fit of `AutoClassifier` needs."""
    by_shots = draws.candidates(TASK, rows, MODEL, AutoOptions(random_state=seed), k=None)
    assert [*by_shots] == [2, 0]
    needed = set()
    for demonstrations, anchors in by_shots.values():
        prefix = "".join(TASK.render(row, row.label) for row in demonstrations)
        needed |= {prefix + TASK.render(row) for row in anchors}
    return needed


def test_one_percent_new_rows_need_at_most_five_percent_new_prompts_in_nine_of_ten_trials(monkeypatch):
    monkeypatch.setattr(draws, "max_demo_shots", lambda task, rows, model: 2)  # That of a long context.
    rare = 0
    for seed in range(40):
        rows = make_rows(1000, seed)
        more = [Example(row.fields, row.label, 1000 + row.row) for row in make_rows(10, 1000 + seed)]
        known = prompts_of(rows, seed)
        needed = prompts_of([*rows, *more], seed)
        rare += len(needed - known) <= 0.05 * len(needed)
    assert rare >= 36


def test_corrected_labels_and_other_orders_keep_the_order_of_rows():
    rows = make_rows(31)
    changed = [Example(row.fields, "0", row.row) for row in rows]
    assert rules.ranked(rows, 3) == rules.ranked(changed, 3)
    backwards = rows[::-1]
    assert [backwards[index] for index in rules.ranked(backwards, 3)] == [
        rows[index] for index in rules.ranked(rows, 3)
    ]
    assert rules.ranked(rows, 3) != rules.ranked(rows, 4)


def test_equal_texts_are_separate_rows():
    rows = [Example({"text": "same"}, "0", row) for row in range(7)]
    assert sorted(rules.ranked(rows, 0)) == list(range(7))


def test_few_of_the_compared_rows_change_with_new_rows(monkeypatch):
    monkeypatch.setattr(evidence, "LIMIT", 101)
    rows = make_rows(1000)
    more = [Example(row.fields, row.label, 1000 + row.row) for row in make_rows(10, 99)]
    before = {rows[index].row for index in rules.sample(rows, 0)}
    after = {[*rows, *more][index].row for index in rules.sample([*rows, *more], 0)}
    assert len(before) == len(after) == 101 and len(before & after) >= 97


@pytest.mark.parametrize(("demo_shots", "seed"), [*itertools.product([0, 2, 100], [0, 1])])
def test_each_class_gives_demonstrations_and_keeps_half(demo_shots, seed):
    rows = make_rows(61)
    drawn = draws.draw(rows, demo_shots, seed)
    sizes = collections.Counter(row.label for row in rows)
    counts = collections.Counter(row.label for row in drawn.demonstrations)
    assert {label: counts[label] for label in sizes} == {
        label: min(demo_shots, size // 2) for label, size in sizes.items()
    }
    assert sorted(row.row for row in (*drawn.demonstrations, *drawn.anchors)) == list(range(61))
    assert [row.row for row in drawn.anchors] == sorted(row.row for row in drawn.anchors)


def test_rows_per_class_are_drawn_in_their_order():
    rows = make_rows(61)
    drawn = draws.first_rows(rows, 5, seed=3)
    assert set(collections.Counter(row.label for row in drawn).values()) == {5}
    assert [row.row for row in drawn] == sorted(row.row for row in drawn)
    assert {row.row for row in drawn} < {row.row for row in draws.first_rows(rows, 6, seed=3)}


def test_rows_at_the_end_do_not_change_how_many_demonstrations_fit():
    rows = [row for row in make_rows(400) if row.label != "2"]
    assert draws.max_demo_shots(TASK, rows, MODEL) == draws.max_demo_shots(TASK, rows[:300], MODEL) == 2


def test_long_texts_leave_no_room_for_demonstrations():
    rows = [Example({"text": "many words " * 100 + str(row)}, "012"[row % 3], row) for row in range(30)]
    short = types.SimpleNamespace(tokenize=MODEL.tokenize, context=1024)
    assert draws.max_demo_shots(TASK, rows, short) == 0
    assert [*draws.candidates(TASK, rows, short, AutoOptions(), k=None)] == [0]


def test_too_few_demonstrations_are_reported(caplog):
    draws.candidates(TASK, make_rows(13), MODEL, AutoOptions(demo_shots=4), k=None)
    assert "demo_shots=4: at most half of a class become demonstrations, so these have fewer: " in caplog.text


def test_draws_with_fewer_anchors_than_k_are_left_out():
    rows = make_rows(13)
    assert [*draws.candidates(TASK, rows, MODEL, AutoOptions(demo_shots=(1, 0)), k=12)] == [0]
    with pytest.raises(kp.UserError, match="k=14: there are 13 anchors; choose k ≤ 13"):
        draws.candidates(TASK, rows, MODEL, AutoOptions(demo_shots=(1, 0)), k=14)
