"""How fast a model reads: given, measured, estimated, or not known; and the hours that follow."""

import dataclasses
import types

import numpy as np
import pytest

from knnprompt_jax import lm
from knnprompt_jax.paper import costs, paces, plan, planner
from knnprompt_jax.planning import job as planning
from knnprompt_jax.prompts import layout
from knnprompt_jax.runs import engine


@pytest.fixture
def planned(grid):
    return planner.Planner().plan([grid])


def mesh_of(grid):
    return engine.make_mesh(grid, grid.model_names)


def test_hours_follow_from_operations():
    assert paces.Pace(4e9, "").seconds(18e9) == 9.0 and paces.Pace(None, "").seconds(1.0) is None


def test_a_given_speed_needs_no_model(grid, planned, monkeypatch):
    monkeypatch.setattr(lm.LanguageModel, "from_files", None)
    given = dataclasses.replace(grid, tflops=0.25)
    (pace,) = paces.of_models(given, planned.whole, mesh_of(grid)).values()
    assert (pace.operations, pace.told) == (0.25e12, "0.25 TFLOP/s, as given by tflops")
    hours = 2 * sum(each.work for each in planned.whole) / 0.25e12 / 3600
    head, _, line, together, told = costs.render(planned, [grid], {grid.models: pace}).split("\n\n")[1].splitlines()
    assert "hours" in head.split() and all(f"{hours:,.3g}" in text.split() for text in (line, together))
    assert told == f"hours: {grid.models}: 0.25 TFLOP/s, as given by tflops"


def test_what_is_measured_is_two_steps(grid, planned):
    measured = paces.of_models(dataclasses.replace(grid, batch=256), planned.whole, mesh_of(grid))[grid.models]
    assert measured.operations > 0
    tokens = int(measured.told.split(" on ")[1].split()[0].replace(",", ""))
    assert tokens <= max(each.cost.tokens for each in planned.whole) and "tokens per second" in measured.told


def test_the_first_prompts_of_the_largest_group():
    def group(lengths, index):
        return layout.PromptGroup(np.arange(3), tuple(np.arange(length) for length in lengths), np.array(index))

    prompts = layout.Prompts((group([5, 5, 5, 5], [4, 0, 2, 3]), group([50], [1])), 5)
    for tokens, count in ((5, 1), (6, 2), (15, 3), (1000, 4)):
        taken = paces.first_prompts(prompts, tokens)
        assert taken.num_prompts == count == len(taken.groups[0].suffixes)
        assert taken.groups[0].index.tolist() == list(range(count))


@pytest.mark.parametrize(
    ("anchors_per_second", "told"),
    [(200.0, "ESTIMATED by the compiler for v5e:2x4, mesh 4 × 2"), (None, "estimates no time")],
)
def test_a_topology_is_planned_for_on_the_mesh_that_fits(grid, planned, monkeypatch, anchors_per_second, told):
    asked = []

    def run(settings):
        asked.append(settings)
        row = types.SimpleNamespace(data=4, model=2, error="", anchors_per_second=anchors_per_second)
        return types.SimpleNamespace(recommended=row, rows=(row,))

    monkeypatch.setattr(planning, "run", run)
    monkeypatch.setattr(lm.LanguageModel, "from_files", None)
    named = dataclasses.replace(grid, topology="v5e:2x4", dtype="bfloat16")
    (pace,) = paces.of_models(named, planned.whole, mesh_of(grid)).values()
    assert told in pace.told
    assert [(each.compile, each.mesh.model, each.dtype, each.task) for each in asked] == [
        (False, 0, "bfloat16", "mr"),
        (True, 2, "bfloat16", "mr"),
    ]
    largest = max(planned.whole, key=lambda each: each.work)
    if anchors_per_second:
        seconds = largest.cost.prompts / anchors_per_second
        np.testing.assert_allclose(pace.seconds(largest.work), seconds)


def test_hours_of_some_passes_are_marked(grid, planned):
    other = dataclasses.replace(planned.whole[0], model=dataclasses.replace(planned.whole[0].model, name="other/other"))
    both = plan.Plan((), {}, (), [*planned.whole, other], set(), "told")
    known = {grid.models: paces.Pace(1e12, "known"), "other/other": paces.Pace(None, "not known")}
    lines = costs.render(both, [grid], known).splitlines()
    assert any(" – " in line and line.startswith("robustness") for line in lines)
    assert lines[-1] == "hours: other/other: not known"
    assert "hours" not in costs.render(both, [grid])
