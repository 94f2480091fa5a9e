"""The table of task statistics: a row for each task and context."""

import dataclasses
import json
import pathlib

import pytest

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.common import errors
from knnprompt_jax.study import task_statistics

MAX_SHOTS = task_statistics.EXPERIMENT


@pytest.fixture
def counting(grid):
    given = {name: getattr(grid, name) for name in ("tasks", "models", "data_dir", "output")}
    return grids.CountSettings(experiment="max_shots", contexts=(64, 128), **given)


def test_the_file_has_the_statistics_and_is_read_back(counting):
    text = task_statistics.count(counting)
    folder = pathlib.Path(counting.output) / "max_shots"
    rows = json.loads((folder / "max_shots.json").read_text())["rows"]
    assert [(row["task"], row["context"], row["num_classes"]) for row in rows] == [("mr", 64, 2), ("mr", 128, 2)]
    assert 1 <= rows[0]["max_shots"] < rows[1]["max_shots"]
    assert all(row["m_t"] <= row["max_shots"] and row["average_template_tokens"] > 5 for row in rows)
    assert text.startswith("Task statistics") and "M_T for 128 tokens" in text
    assert MAX_SHOTS.read(folder) == rows
    assert len(MAX_SHOTS.section(rows, folder).tables[0].rows) == 2 + 3 * 4


def test_mistakes_write_nothing(counting):
    with pytest.raises(errors.UserError, match="nowhere"):
        task_statistics.count(dataclasses.replace(counting, tokenizer="nowhere"))
    assert not pathlib.Path(counting.output).exists()
