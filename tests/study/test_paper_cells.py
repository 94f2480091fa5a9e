"""The cells of a grid and their draws: regimes, published draws, and draws with one class rare."""

import collections
import dataclasses
import re

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.methods import all_methods
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.study import paper_experiment as cells
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Task
from tests.study.conftest import cells_of, make_grid
from tests.study.small_world import choosing


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["full icl 4 4", "full knn 4 4", "full knn 8 4"]),
        ({"regime": "few-shot", "shots": (2,)}, ["few-shot icl 2 2", "few-shot knn 2 1"]),
        ({"shots": (8,), "few_shots": (8,), "methods": "knn"}, ["full knn 8 4", "few-shot knn 8 1"]),
        # Beside the full regime, no demonstrations are cut.
        (
            {"shots": (), "few_shots": (2, 4, 8)},
            [*("few-shot icl 2 2", "few-shot knn 2 1", "few-shot icl 4 4", "few-shot knn 4 1"), "few-shot knn 8 1"],
        ),
    ],
)
def test_regimes_decide_shots_and_demonstrations(rows, given, expected):
    found = [(dict(cell.axes)["regime"], cell.method, cell.draw) for cell in cells_of(make_grid(**given), rows)]
    assert [f"{regime} {name} {draw.shots} {draw.demo_shots}" for regime, name, draw in found] == expected


@pytest.mark.parametrize(
    ("name", "given", "turned"),
    [
        ("knn", {}, {"kl": "kl", "reverse_kl": "reverse_kl"}),
        ("knn", {"distance": "kl_labels", "k": 5}, {"kl": "kl_labels", "reverse_kl": "reverse_kl_labels"}),
        ("knn_kl_labels", {}, {"kl": "kl_labels", "reverse_kl": "reverse_kl_labels"}),
    ],
)
def test_a_grid_turns_the_distance_of_a_method_and_keeps_its_other_options(rows, name, given, turned):
    method = all_methods.get(name)
    for direction, distance in turned.items():
        settings = choosing(make_grid(methods=name, direction=direction), **{method.base: given})
        *_, cell = cells_of(settings, rows)
        assert cell.options(settings) == dataclasses.replace(method.options(settings), distance=distance)


@pytest.mark.parametrize(
    ("draw", "warned"),
    [((1, 31, 31, None), ["0", "1"]), ((1, 24, 0, 0.25), ["0"]), ((1, 24, 24, 0.25), ["0"]), ((1, 8, 8, 0.25), [])],
)
def test_draws_with_too_few_rows_warn(rows, draw, warned):
    """The task has 23 and 19 rows; of 2 · 24 rows, a share of 0.25 asks for 36 and 12."""
    warnings = cells.split(rows, cells.Draw(*draw)).warnings
    assert [re.match("task 'two': class '(.)' has ", warning)[1] for warning in warnings] == warned


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
    split = cells.split(rows, cells.Draw(3, 9, 2, share))
    balanced = cells.split(rows, cells.Draw(3, 9, 2))
    assert counts(split.anchors) == anchors
    assert (split.anchors == balanced.anchors) == (share == 0.5)
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


def test_prior_settings_skew_train_rows_test_rows_or_both(rows):
    given = make_grid("prior_reliance", shots=(4,), regime="few-shot", prior_settings=("A", "B", "C"), shares=(0.25,))
    found = {(dict(cell.axes)["setting"], cell.method): cell for cell in cells_of(given, rows, 2)}
    assert {key: (cell.draw.share, cell.test_share) for key, cell in found.items()} == {
        (setting, name): shares
        for setting, shares in {"A": (0.25, 0.5), "B": (0.5, 0.25), "C": (0.25, 0.25)}.items()
        for name in ("icl", "knn")
    }
    assert found["A", "icl"].draw.demo_shots == 4 and found["A", "knn"].draw.demo_shots == 1


def test_imbalance_has_a_share_in_each_regime(rows):
    given = make_grid("imbalance", "knn,knn_centroid", shots=(8,), few_shots=(4,), shares=(0.25,))
    assert [(cell.method, cell.draw.share, dict(cell.axes)) for cell in cells_of(given, rows)] == [
        (name, 0.25, {"ratio": 0.25, "regime": regime})
        for regime in ("full", "few-shot")
        for name in ("knn", "knn_centroid")
    ]
