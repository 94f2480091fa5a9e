"""Cells that all compared methods have, and the verdicts on differences."""

import dataclasses

import pytest

from knnprompt_jax.common import errors
from tests.tools.small_records import grid, make
from tools import intervals, scales

MODELS = ("smollm2", "gemma-3-270m")


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({8: (0.1, 2), 32: (1, 2)}, "yes"),
        ({8: (-1, 2), 32: (1, 2)}, "yes (m = 32)"),
        ({8: (-2, -1), 32: (1, 2)}, "yes (m = 32); no (m = 8)"),
        ({8: (-2, -1)}, "no"),
        ({8: (-2, 0), 32: (0, 2)}, "?"),
        ({}, "–"),
    ],
)
def test_verdicts(ends, expected):
    assert scales.verdict({m: intervals.Difference(0, *each) for m, each in ends.items()}) == expected


def test_cells_are_those_that_every_method_has():
    scale = scales.Scale([*grid(), make("knn", "sst2", 8, 1, 7)])
    assert scale.models == ["smollm2"] and scale.shots == [8, 32] and scale.compared["smollm2"] == ["icl", "knn"]
    assert scale.cells(["smollm2"], 8) == {"cr": [1, 2], "mr": [1, 2, 3]}
    assert scale.accuracy("smollm2", "icl", 32, "mr", [1, 2, 3]).mean == pytest.approx(100 * 2 / 7)
    assert scale.accuracy("smollm2", "most_common", 8, "mr", [1, 2]).mean == 100
    cells = scale.cells(["smollm2"], 8)
    assert scale.mean("smollm2", "knn", 8, cells) == pytest.approx(100 * (4 + 3.5) / 2 / 7)
    assert scale.between("smollm2", "knn", "icl", 8).mean == pytest.approx(200 / 7)
    assert str(scale.growth("smollm2", "knn", 8, 32)) == "+0.00 [0.00, 0.00]"
    assert scale.growth("smollm2", "knn", 8, 32, "mr", without="mr") is None


def test_models_are_compared_on_the_tasks_that_all_have():
    less = [
        make(method, "mr", m, seed, 5, model=MODELS[1]) for method, m in (("icl", 2), ("knn", 8)) for seed in (1, 2)
    ]
    scale = scales.Scale([*grid(), *less])
    assert scale.models == [*MODELS] and scale.shared("smollm2", 8) == {"mr": [1, 2, 3]}
    assert scale.between("smollm2", "knn", "icl", 8, "cr").mean == pytest.approx(200 / 7)
    assert scale.between(MODELS[1], "knn", "icl", 8, "cr") is None
    assert scale.shared("smollm2", 32) == {"cr": [1, 2], "mr": [1, 2, 3]}
    assert scale.tasks() == "MR, with 3 seeds (Gemma 3 270M: 2)"


def test_two_records_of_a_run_and_other_test_rows_are_refused():
    with pytest.raises(errors.UserError, match="an earlier record is of the same run"):
        scales.Scale([*grid(), make("knn", "mr", 8, 1, 5)])
    with pytest.raises(errors.UserError, match="other test rows than in earlier records of mr"):
        scales.Scale([*grid(), dataclasses.replace(make("knn", "mr", 64, 1, 5), true=("0",) * 7)])
