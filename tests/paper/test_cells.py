"""The cells of a grid: regimes, axes, and cells that re-use in-context learning."""

import dataclasses

import pytest

from knnprompt_jax.methods import method, registry
from knnprompt_jax.paper import cells, experiments
from tests.paper.conftest import Settings


def grid(experiment="robustness", methods="icl,knn", **axes):
    given = {"seeds": (1,), "shots": (4, 8)} | axes
    return Settings(experiment=experiment, tasks=("mr",), models=("tiny",), methods=tuple(methods.split(",")), **given)


def cells_of(given, rows, most=4):
    return list(dict.fromkeys(experiments.EXPERIMENTS[given.experiment].cells(given, given.methods, rows, most)))


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
        ("knn", {}, {"forward": "forward", "released": "released"}),
        ("knn", {"distance": "partial", "k": 5}, {"forward": "partial", "released": "partial_released"}),
        ("knn", {"distance": "hidden"}, {"forward": "hidden", "released": "hidden"}),
        ("knn_partial", {}, {"forward": "partial", "released": "partial_released"}),
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


def test_imbalance_has_a_share_in_each_regime(rows):
    given = grid("imbalance", "knn,knn_centroid", shots=(8,), few_shots=(4,), shares=(0.25,))
    assert [(cell.method, cell.draw.share, dict(cell.axes)) for cell in cells_of(given, rows)] == [
        (name, 0.25, {"ratio": 0.25, "regime": regime})
        for regime in ("full", "few-shot")
        for name in ("knn", "knn_centroid")
    ]


def test_sizes_fit_in_the_context_together(rows):
    given = grid("split_strategy", "knn", demo_shots=(1, 2, 3), anchor_shots=(1, 3))
    found = [(cell.draw.demo_shots, dict(cell.axes)["anchor_shots"], cell.draw.shots) for cell in cells_of(given, rows)]
    assert found == [(1, 1, 2), (1, 3, 4), (2, 1, 3), (3, 1, 4)]


def test_k_goes_to_the_number_of_anchors(rows):
    given = grid("choice_of_k", "knn", shots=(4,), regime="few-shot")
    found = [(dict(cell.axes)["k"], cell.options(given).k) for cell in cells_of(given, rows)]
    assert found == [(k, k) for k in range(1, 7)]


def test_the_upper_bound_is_searched_for_once(rows):
    given = grid("upper_bound", "demonstration_upper_bound,knn", shots=(8,), seeds=(3, 5))
    found = [(cell.method, cell.draw.seed) for cell in cells_of(given, rows)]
    assert found == [("demonstration_upper_bound", 3), ("knn", 3), ("knn", 5)]


def test_methods_that_train_their_own_model_see_no_demonstrations(rows):
    found = [(cell.method, cell.draw) for cell in cells_of(grid("fine_tuning", "fine_tuning_bert"), rows, 0)]
    assert found == [("fine_tuning_bert", cells.Draw(1, shots, 0)) for shots in (4, 8)]


@pytest.mark.parametrize("name", [name for name, one in registry.METHODS.items() if one.sees == "demonstrations"])
def test_methods_that_see_demonstrations_alone_need_no_anchors(name):
    assert method.anchors not in registry.get(name).needs
    assert not cells.GridCell(name, cells.Draw(1, 4, 4)).reuses_icl
