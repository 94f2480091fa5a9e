"""The table of task statistics: a row for each task and context."""

import dataclasses
import json
import pathlib

import pytest

from knnprompt_jax import errors
from knnprompt_jax.paper import job, max_shots


@pytest.fixture
def counting(grid):
    return dataclasses.replace(grid, experiment="max_shots", contexts=(64, 128), rows=0)


def test_the_file_has_the_statistics(counting, capsys):
    job.run(counting)
    rows = json.loads((pathlib.Path(counting.output) / "max_shots" / "max_shots.json").read_text())["rows"]
    assert [(row["task"], row["context"], row["num_classes"]) for row in rows] == [("mr", 64, 2), ("mr", 128, 2)]
    assert 1 <= rows[0]["max_shots"] < rows[1]["max_shots"]
    assert all(row["m_t"] <= row["max_shots"] and row["average_template_tokens"] > 5 for row in rows)
    shown = capsys.readouterr().out
    assert f"{rows[1]['max_shots']} ({100 * rows[1]['truncated']:.0f} %)" in shown


def test_published_statistics_come_out(counting, shared):
    given = {"data_dir": str(shared / "data"), "tokenizer": str(shared / "tokenizers" / "gpt2"), "tasks": "cb"}
    rows = max_shots.run(dataclasses.replace(counting, **given, contexts=(1024,)))
    assert [(round(row["average_template_tokens"], 1), row["m_t"]) for row in rows] == [(90.8, 2)]


@pytest.mark.parametrize(
    ("change", "message"), [({"contexts": ()}, "nothing to count"), ({"tokenizer": "nowhere"}, "nowhere")]
)
def test_mistakes_write_nothing(counting, change, message):
    with pytest.raises(errors.UserError, match=message):
        job.run(dataclasses.replace(counting, **change))
    assert not pathlib.Path(counting.output).exists()
