"""Views and folds: every row is read once, never after itself, and new rows keep the order of the others."""

import collections

import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier.experts import near_copies, views
from knnprompt_jax.tasks.task import Example
from tests.class_rows import MODEL, TASK, make_rows


@pytest.mark.parametrize("count", [3, 17, 61, 211])
@pytest.mark.parametrize("shots", [0, 1, 8, 100])
def test_every_row_is_read_once_and_never_after_itself(count, shots):
    rows = make_rows(count)
    view = views.deal(rows, near_copies.number_texts(rows), shots, seed=0)
    assert sorted(index for group in view.groups for index in group.members) == list(range(count))
    sizes = collections.Counter(row.label for row in rows)
    shown = collections.Counter(rows[index].label for index in view.demonstrations)
    assert all(shown[label] == min(shots, size) for label, size in sizes.items())
    for group in view.groups:
        assert not set(group.demonstrations) & set(group.members)
        counts = collections.Counter(rows[index].label for index in group.demonstrations)
        assert max(counts.values(), default=0) <= shots
    assert len(view.groups) <= (2 if min(sizes.values()) >= 2 * shots else 5), "each group costs a prefix"
    assert shown.total() == count or view.groups[0].demonstrations == view.demonstrations


def test_corrected_labels_and_other_orders_keep_the_order_of_rows():
    rows = make_rows(31)
    changed = [Example(row.fields, "0", row.row) for row in rows]
    assert views.hash_order(rows, 3) == views.hash_order(changed, 3)
    backwards = rows[::-1]
    assert [30 - index for index in views.hash_order(backwards, 3)] == views.hash_order(rows, 3)
    assert [index for index in views.hash_order(rows, 3) if index < 20] == views.hash_order(rows[:20], 3)
    assert views.hash_order(rows, 3) != views.hash_order(rows, 4)


@pytest.mark.parametrize("shots", [2, 8, 100])
def test_no_row_follows_its_copy(shots):
    """Copies differ in case, blanks and the order of fields."""
    rows = [Example(row.fields | {"more": f"x{row.row}"}, row.label, row.row) for row in make_rows(31)]
    copied = [Example({"text": r.fields["more"], "more": f" {r.fields['text']}".upper()}, r.label) for r in rows]
    view = views.deal([*rows, *copied], near_copies.number_texts([*rows, *copied]), shots, seed=0)
    assert sorted(index for group in view.groups for index in group.members) == list(range(62))
    for group in view.groups:
        assert not {index % 31 for index in group.demonstrations} & {index % 31 for index in group.members}


@pytest.mark.parametrize("sizes", [(8, 8), (1, 1), (40, 3), (2, 9, 100)])
def test_folds_have_the_classes_of_the_whole(sizes):
    y_N = np.repeat(np.arange(len(sizes)), sizes)
    folds_N = views.deal_folds(y_N, np.arange(len(y_N)))
    for label, size in enumerate(sizes):
        counts = np.bincount(folds_N[y_N == label], minlength=folds_N.max() + 1)
        assert counts.max() - counts.min() <= 1 and counts.sum() == size
    assert 2 <= folds_N.max() + 1 <= 10


@pytest.mark.parametrize(
    ("per_class", "words", "context", "shots"),
    [(1, 1, 8192, 0), (2, 1, 8192, 2), (9, 1, 8192, 9), (50, 1, 8192, 16), (50, 20, 8192, 8), (50, 10, 512, 4)]
    + [(50, 500, 8192, 0)],
)
def test_demonstrations_by_default(per_class, words, context, shots):
    rows = [Example({"text": "w" * words + f"{row:03}"}, "012"[row % 3], row) for row in range(3 * per_class)]
    task = kp.Task("w", ("text",), "{text}:", ("0", "1", "2"), ("a", "b", "c"))
    found = views.default_numbers(task, rows, MODEL.count_tokens, context, seed=0)
    assert found == ((shots, 0) if shots else (0,))


def test_many_classes_have_no_demonstrations_by_default():
    rows = [Example({"text": f"t{row}"}, str(row % 20), row) for row in range(60)]
    assert views.default_numbers(TASK, rows, MODEL.count_tokens, 8192, seed=0) == (0,)
