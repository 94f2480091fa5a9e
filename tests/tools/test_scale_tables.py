"""Tables of the pages: columns, means, spreads and paired differences."""

import itertools

import numpy as np

from tests.tools.small_records import grid, make
from tools import scale_tables, scales


def test_spreads_are_those_of_the_tasks_at_every_m():
    """CR is left out; SUBJ is as MR, with other accuracies; SST2 has one m."""
    records = [*grid(), *(make("knn", "sst2", 32, seed, seed) for seed in (1, 2, 3))]
    records += [make("icl", task, 2, seed, seed) for task in ("sst2", "subj") for seed in (1, 2, 3)]
    records += [make("knn", "subj", m, seed, 2 * seed) for m in (8, 32) for seed in (1, 2, 3)]
    *_, row = scale_tables.spread_table(scales.Scale(records), "knn", "icl", (8, 32)).splitlines()
    mr, subj = np.std([1, 2, 3], ddof=1), np.std([2, 4, 6], ddof=1)
    spread = f"{100 * (mr + subj) / 2 / 7:.1f} (0 of 2)"
    assert row == f"| SmolLM2 | {100 * mr / 7:.1f} | {spread} | {spread} |"


def test_an_axis_has_a_column_for_each_value_and_a_paired_difference():
    right = {3: {"cr": (6, 3), "mr": (5, 4)}, 1: {"cr": (2, 1), "mr": (5, 4)}}
    records = [
        make("knn", task, 8, seed, right[k][task][seed - 1], cell={"k": k})
        for task, k, seed in itertools.product(("mr", "cr"), (3, 1), (2, 1))
    ]
    header, _, *rows = scale_tables.axis_table(records, "k", (3, 1)).splitlines()
    assert header == "|  | k = 1 | k = 3 | 3 − 1 |" and rows[1] == "| MR | 64.3 | 64.3 | +0.00 [0.00, 0.00] |"
    assert rows[0].startswith("| CR | 21.4 | 64.3 | +42.9 [")
