"""Which cells a grid has: regimes, axes, and cells that re-use in-context learning."""

import dataclasses

import pytest

from knnprompt_jax.paper import cells, draws, settings


def grid(experiment="robustness", methods="icl,knn", **axes):
    given = {"seeds": (1,), "shots": (4, 8)} | axes
    return settings.GridSettings(experiment=experiment, tasks="mr", models="tiny", methods=methods, **given)


def listed(given, rows, most=4):
    return [(one.method, one.draw, dict(one.axes)) for one in dict.fromkeys(cells.enumerate_cells(given, rows, most))]


def test_the_full_regime_shows_as_many_as_the_context_holds(rows):
    assert listed(grid(), rows) == [
        ("icl", draws.Draw(1, 4, 4), {}),
        ("knn", draws.Draw(1, 4, 4), {}),
        ("knn", draws.Draw(1, 8, 4), {}),
    ]


def test_the_few_shot_regime_shows_all_or_one(rows):
    assert listed(grid(regime="few-shot", shots=(2,)), rows) == [
        ("icl", draws.Draw(1, 2, 2), {}),
        ("knn", draws.Draw(1, 2, 1), {}),
    ]


def test_two_regimes_are_told_apart(rows):
    found = listed(grid(shots=(8,), few_shots=(8,), methods="knn"), rows)
    assert found == [
        ("knn", draws.Draw(1, 8, 4), {"regime": "full"}),
        ("knn", draws.Draw(1, 8, 1), {"regime": "few-shot"}),
    ]


def test_beside_the_full_regime_no_demonstrations_are_cut(rows):
    found = listed(grid(shots=(), few_shots=(2, 4, 8)), rows)
    assert [(name, draw.shots) for name, draw, _ in found] == [
        *[("icl", 2), ("knn", 2), ("icl", 4), ("knn", 4)],
        ("knn", 8),
    ]


def test_where_all_shots_are_demonstrations_in_context_learning_is_used_again(rows):
    reused, plain = (one for one in cells.enumerate_cells(grid(methods="knn"), rows, 4))
    assert reused.reuses_icl and reused.declared.name == "icl" and reused.options(grid()) == {}
    assert not plain.reuses_icl and plain.declared.name == "knn"
    assert plain.options(grid())["direction"] == "released"
    assert plain.options(grid(direction="forward", options={"knn": {"k": 5}})) == {
        **plain.options(grid(direction="forward")),
        "k": 5,
    }


@pytest.mark.parametrize("direction", ["forward", "released"])
def test_a_grids_direction_leaves_the_method_alone_that_is_named_after_its_own(rows, direction):
    *_, cell = cells.enumerate_cells(grid(methods="knn_released"), rows, 4)
    assert cell.options(grid(direction=direction))["direction"] == "released"


def test_prior_settings_skew_train_rows_test_rows_or_both(rows):
    given = grid("prior_reliance", shots=(4,), regime="few-shot", prior_settings="A,B,C", shares=(0.25,))
    found = {(dict(one.axes)["setting"], one.method): one for one in cells.enumerate_cells(given, rows, 2)}
    assert {key: (one.draw.share, one.test_share) for key, one in found.items()} == {
        (setting, name): shares
        for setting, shares in {"A": (0.25, None), "B": (None, 0.25), "C": (0.25, 0.25)}.items()
        for name in ("icl", "knn")
    }
    assert found["A", "icl"].draw.demo_shots == 4 and found["A", "knn"].draw.demo_shots == 1


def test_imbalance_names_ratio_centroid_and_regime(rows):
    given = grid("imbalance", "knn,knn_centroid", shots=(8,), few_shots=(4,), shares=(0.25,))
    assert [axes for _, _, axes in listed(given, rows)] == [
        {"ratio": 0.25, "centroid": centroid, "regime": regime}
        for regime in ("full", "few-shot")
        for centroid in ("none", "arithmetic")
    ]


def test_sizes_fit_in_the_context_together(rows):
    given = grid("split_strategy", "knn", demo_shots=(1, 2, 3), anchor_shots=(1, 3))
    found = [(draw.demo_shots, axes["anchor_shots"], draw.shots) for _, draw, axes in listed(given, rows)]
    assert found == [(1, 1, 2), (1, 3, 4), (2, 1, 3), (3, 1, 4)]


def test_k_goes_to_the_number_of_anchors(rows):
    given = grid("choice_of_k", "knn", shots=(4,), regime="few-shot")
    assert [axes["k"] for _, _, axes in listed(given, rows)] == [1, 2, 3, 4, 5, 6]
    last = list(cells.enumerate_cells(given, rows, 2))[-1]
    assert last.options(given) == {"k": 6, "direction": "released"}


def test_the_upper_bound_says_of_how_many_prompts(rows):
    options = {"demonstration_upper_bound": {"num_prompts": 7}}
    given = grid("upper_bound", "demonstration_upper_bound,knn", shots=(8,), seeds=(3, 5), options=options)
    assert [(name, draw.seed, axes) for name, draw, axes in listed(given, rows)] == [
        ("demonstration_upper_bound", 3, {"prompts": 7}),
        *[("knn", seed, {}) for seed in (3, 5)],
    ]


def test_methods_that_train_their_own_model_have_cells_of_their_own(rows):
    given = grid("fine_tuning", "knn,fine_tuning_bert")
    assert {one.method for one in cells.enumerate_cells(given, rows, 2)} == {"knn"}
    assert list(cells.trained_cells(given)) == [
        cells.Cell("fine_tuning_bert", draws.Draw(1, shots, 0)) for shots in (4, 8)
    ]


@pytest.mark.parametrize("name", cells.SEE_DEMONSTRATIONS)
def test_methods_that_see_demonstrations_exist_and_need_no_anchors(name):
    one = dataclasses.replace(cells.Cell(name, draws.Draw(1, 4, 4)))
    assert one.declared.name == name and not one.reuses_icl
