"""Reliance on prior knowledge: the table beside the paper's."""

import dataclasses

import pytest

from knnprompt_jax.paper import experiment, experiments


def test_prior_reliance_is_averaged_over_tasks_as_in_the_paper(make_record):
    tasks = ("sst2", "mpqa", "subj", "mr", "cr")
    records = [
        dataclasses.replace(
            make_record("prior_reliance", task, "icl", 8, seed, cell={"setting": "B", "ratio": ratio}),
            accuracy=0.4 + ratio / 2 + number / 100,
        )
        for number, task in enumerate(tasks)
        for seed in (1, 2)
        for ratio in (0.125, 0.25, 0.375, 0.5)
    ]
    shown = experiment.Shown("prior_reliance", records)
    (table,), _ = experiments.get("prior_reliance").draw(shown)
    (row,) = (row for row in table.rows if row.headers == ("B", "In-context learning"))
    assert [cell.ours.mean for cell in row.cells] == pytest.approx([48.25, 54.5, 60.75, 67.0, 57.625, -18.75])
    assert [cell.paper.mean for cell in row.cells] == pytest.approx([45.9, 53.4, 60.9, 67.9, 57.04, -22.06])
    assert all(cell.comparable for cell in row.cells)
