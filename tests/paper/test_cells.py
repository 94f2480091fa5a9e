"""The cells of a grid: regimes, axes, and cells that re-use in-context learning."""

import dataclasses

import pytest

from knnprompt_jax.paper import cells, experiments
from tests.paper.conftest import Settings


def grid(experiment="robustness", methods="icl,knn", **axes):
    given = {"seeds": (1,), "shots": (4, 8)} | axes
    return Settings(experiment=experiment, tasks=("mr",), models=("tiny",), methods=tuple(methods.split(",")), **given)


def cells_of(given, rows, most=4):
    return list(dict.fromkeys(experiments.EXPERIMENTS[given.experiment].cells(given, rows, most)))


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
    found = [(dict(cell.axes)["regime"], cell.method, cell.draw) for cell in cells_of(grid(**given), rows)]
    assert [f"{regime} {name} {draw.shots} {draw.demo_shots}" for regime, name, draw in found] == expected


@pytest.mark.parametrize(
    ("name", "given", "turned"),
    [
        ("knn", {}, {"kl": "kl", "reverse_kl": "reverse_kl"}),
        ("knn", {"distance": "kl_labels", "k": 5}, {"kl": "kl_labels", "reverse_kl": "reverse_kl_labels"}),
        ("knn", {"distance": "l2"}, {"kl": "l2", "reverse_kl": "l2"}),
        ("knn_kl_labels", {}, {"kl": "kl_labels", "reverse_kl": "reverse_kl_labels"}),
        ("chosen", {}, {"kl": "auto", "reverse_kl": "auto"}),
    ],
)
def test_a_grid_turns_the_distance_of_a_method_and_keeps_its_other_options(rows, name, given, turned):
    for direction, distance in turned.items():
        plain = grid(methods=name, direction=direction)
        chosen = dataclasses.replace(getattr(plain.options, name), **given)
        settings = dataclasses.replace(plain, options=dataclasses.replace(plain.options, **{name: chosen}))
        *_, cell = cells_of(settings, rows)
        assert cell.options(settings) == dataclasses.replace(chosen, distance=distance)


def test_prior_settings_skew_train_rows_test_rows_or_both(rows):
    given = grid("prior_reliance", shots=(4,), regime="few-shot", prior_settings=("A", "B", "C"), shares=(0.25,))
    found = {(dict(cell.axes)["setting"], cell.method): cell for cell in cells_of(given, rows, 2)}
    assert {key: (cell.draw.share, cell.test_share) for key, cell in found.items()} == {
        (setting, name): shares
        for setting, shares in {"A": (0.25, 0.5), "B": (0.5, 0.25), "C": (0.25, 0.25)}.items()
        for name in ("icl", "knn")
    }
    assert found["A", "icl"].draw.demo_shots == 4 and found["A", "knn"].draw.demo_shots == 1


@pytest.mark.parametrize(
    ("draw", "warned"),
    [
        ((1, 31, 31, None), {"0": (23, 31), "1": (19, 31)}),
        ((1, 24, 0, 0.25), {"0": (23, 36)}),
        ((1, 24, 24, 0.25), {"0": (23, 36)}),
        ((1, 8, 8, 0.25), {}),
    ],
)
def test_draws_with_too_few_rows_warn(rows, draw, warned):
    """The task has 23 and 19 rows; of 2 · 24 rows, a share of 0.25 asks for 36 and 12."""
    split = cells.split(rows, cells.Draw(*draw))
    found = [
        f"task 'two': class {label!r} has {have} of the {asked} rows asked for"
        for label, (have, asked) in warned.items()
    ]
    assert list(split.warnings) == found


def test_imbalance_has_a_share_in_each_regime(rows):
    given = grid("imbalance", "knn,knn_centroid", shots=(8,), few_shots=(4,), shares=(0.25,))
    assert [(cell.method, cell.draw.share, dict(cell.axes)) for cell in cells_of(given, rows)] == [
        (name, 0.25, {"ratio": 0.25, "regime": regime})
        for regime in ("full", "few-shot")
        for name in ("knn", "knn_centroid")
    ]
