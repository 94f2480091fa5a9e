"""Which cells a grid has: regimes, axes, and cells that re-use in-context learning."""

import dataclasses

import pytest

from knnprompt_jax.methods import method, registry
from knnprompt_jax.paper import cells, draws, experiments
from tests.paper.conftest import Settings


def grid(experiment="robustness", methods="icl,knn", **axes):
    given = {"seeds": (1,), "shots": (4, 8)} | axes
    return Settings(experiment=experiment, tasks="mr", models="tiny", methods=methods, **given)


def cells_of(given, rows, most=4):
    return experiments.get(given.experiment).cells_of(given, rows, most)


def listed(given, rows, most=4):
    """Method, draw and the axes but for the regime."""
    found = cells_of(given, rows, most)
    return [(cell.method, cell.draw, {k: v for k, v in cell.axes if k != "regime"}) for cell in found]


@pytest.mark.parametrize(
    ("given", "wanted"),
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
def test_regimes(rows, given, wanted):
    """Regime, method, shots and demonstrations: the full regime shows as many as the context holds, the other all or one."""
    cells_found = cells_of(grid(**given), rows)
    assert wanted == [
        f"{dict(cell.axes)['regime']} {cell.method} {cell.draw.shots} {cell.draw.demo_shots}" for cell in cells_found
    ]


def test_where_all_shots_are_demonstrations_in_context_learning_is_used_again(rows):
    reused, plain = cells_of(grid(methods="knn"), rows)
    assert reused.reuses_icl and reused.declared.name == "icl"
    assert reused.options(grid()) == grid().options.icl
    assert not plain.reuses_icl and plain.declared.name == "knn"


@pytest.mark.parametrize("direction", ["forward", "released"])
@pytest.mark.parametrize(
    ("name", "given", "distances"),
    [
        ("knn", {}, {"forward": "forward", "released": "released"}),
        ("knn", {"distance": "partial", "k": 5}, {"forward": "partial", "released": "partial_released"}),
        ("knn", {"distance": "hidden"}, {"forward": "hidden", "released": "hidden"}),
        ("knn_partial", {}, {"forward": "partial", "released": "partial_released"}),
    ],
)
def test_a_grid_turns_the_distance_of_a_method_and_keeps_its_other_options(rows, direction, name, given, distances):
    plain = grid(methods=name, direction=direction)
    options = dataclasses.replace(plain.options, **{name: dataclasses.replace(getattr(plain.options, name), **given)})
    settings = dataclasses.replace(plain, options=options)
    *_, cell = cells_of(settings, rows)
    expected = dataclasses.replace(getattr(options, name), distance=distances[direction])
    assert cell.options(settings) == expected


@pytest.mark.parametrize("direction", ["forward", "released"])
@pytest.mark.parametrize("name", ["knn_released", "knn_l2"])
def test_a_method_without_a_choice_of_distance_is_left_alone(rows, name, direction):
    settings = grid(methods=name, direction=direction)
    *_, cell = cells_of(settings, rows)
    assert cell.options(settings) == getattr(settings.options, name)


def test_prior_settings_skew_train_rows_test_rows_or_both(rows):
    given = grid("prior_reliance", shots=(4,), regime="few-shot", prior_settings="A,B,C", shares=(0.25,))
    found = {(dict(cell.axes)["setting"], cell.method): cell for cell in cells_of(given, rows, 2)}
    assert {key: (cell.draw.share, cell.test_share) for key, cell in found.items()} == {
        (setting, name): shares
        for setting, shares in {"A": (0.25, 0.5), "B": (0.5, 0.25), "C": (0.25, 0.25)}.items()
        for name in ("icl", "knn")
    }
    assert found["A", "icl"].draw.demo_shots == 4 and found["A", "knn"].draw.demo_shots == 1


def test_imbalance_has_a_share_in_each_regime(rows):
    given = grid("imbalance", "knn,knn_centroid", shots=(8,), few_shots=(4,), shares=(0.25,))
    found = cells_of(given, rows)
    assert [(cell.method, cell.draw.share, dict(cell.axes)) for cell in found] == [
        (name, 0.25, {"ratio": 0.25, "regime": regime})
        for regime in ("full", "few-shot")
        for name in ("knn", "knn_centroid")
    ]


def test_sizes_fit_in_the_context_together(rows):
    given = grid("split_strategy", "knn", demo_shots=(1, 2, 3), anchor_shots=(1, 3))
    found = [(draw.demo_shots, axes["anchor_shots"], draw.shots) for _, draw, axes in listed(given, rows)]
    assert found == [(1, 1, 2), (1, 3, 4), (2, 1, 3), (3, 1, 4)]


def test_k_goes_to_the_number_of_anchors(rows):
    given = grid("choice_of_k", "knn", shots=(4,), regime="few-shot")
    found = cells_of(given, rows)
    assert [dict(cell.axes)["k"] for cell in found] == [1, 2, 3, 4, 5, 6]
    assert [cell.options(given).k for cell in found] == [1, 2, 3, 4, 5, 6]
    assert found[-1].declared.run is not registry.get("knn").run


def test_the_upper_bound_is_searched_for_once(rows):
    given = grid("upper_bound", "demonstration_upper_bound,knn", shots=(8,), seeds=(3, 5))
    assert [(name, draw.seed) for name, draw, _ in listed(given, rows)] == [
        ("demonstration_upper_bound", 3),
        *[("knn", seed) for seed in (3, 5)],
    ]


def test_methods_that_train_their_own_model_have_cells_of_their_own(rows):
    given = grid("fine_tuning", "knn,fine_tuning_bert")
    assert {cell.method for cell in cells_of(given, rows, 2)} == {"knn"}
    assert [(cell.method, cell.draw) for cell in cells.trained_cells(given)] == [
        ("fine_tuning_bert", draws.Draw(1, shots, 0)) for shots in (4, 8)
    ]


@pytest.mark.parametrize("name", [name for name, one in registry.METHODS.items() if one.sees == "demonstrations"])
def test_methods_that_see_demonstrations_alone_need_no_anchors(name):
    assert method.anchors not in registry.get(name).needs
    assert not cells.GridCell(name, draws.Draw(1, 4, 4)).reuses_icl
