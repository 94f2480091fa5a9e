"""Grids over an axis of their own: the cells of skewed draws, and the table of reliance on prior knowledge."""

import dataclasses

import pytest

from knnprompt_jax.paper import experiment, experiments
from knnprompt_jax.report import results
from tests.paper.conftest import cells_of, make_grid


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


def test_prior_reliance_is_averaged_over_tasks_as_in_the_paper(make_record):
    records = [
        dataclasses.replace(
            make_record("prior_reliance", task, "icl", 8, seed, cell={"setting": "B", "ratio": ratio}),
            accuracy=0.4 + ratio / 2 + number / 100,
        )
        for number, task in enumerate(("sst2", "mpqa", "subj", "mr", "cr"))
        for seed in (1, 2)
        for ratio in (0.125, 0.25, 0.375, 0.5)
    ]
    data = experiment.Data("prior_reliance", results.frame(records))
    (table,), _ = experiments.EXPERIMENTS["prior_reliance"].draw(data)
    (row,) = (row for row in table.rows if row.headers == ("B", "In-context learning"))
    assert [cell.ours.mean for cell in row.cells] == pytest.approx([48.25, 54.5, 60.75, 67.0, 57.625, -18.75])
    assert [cell.paper.mean for cell in row.cells] == pytest.approx([45.9, 53.4, 60.9, 67.9, 57.04, -22.06])
    assert all(cell.comparable for cell in row.cells)
    fewer = [record for record in records if record.cell["ratio"] in (0.125, 0.5)]
    lacking = [record for record in records if (record.task, record.cell["ratio"]) != ("cr", 0.25)]
    for left, columns in ((fewer, 4), (lacking, 5)):
        (table,), _ = experiments.EXPERIMENTS["prior_reliance"].draw(
            experiment.Data("prior_reliance", results.frame(left))
        )
        (row,) = (row for row in table.rows if row.headers == ("B", "In-context learning"))
        average, drop = row.cells[-2:]
        assert average.ours and drop.ours and not (average.paper or drop.paper), "they are of other numbers"
        assert all(cell.paper for cell in row.cells[:4])
        assert len([cell for cell in row.cells if cell.ours]) == columns
