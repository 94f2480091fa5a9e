"""Every accuracy that the paper prints by task has its cell, unaltered."""

import json

import pytest

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.report import published, results


@pytest.fixture(scope="module")
def paper(request):
    """The paper's tables as they were read from its source, or as they ship where that is not there."""
    path = request.config.rootpath.parent / "shared" / "paper" / "tables.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else published.tables()


@pytest.mark.parametrize("table", published.TABLES)
def test_accuracies(paper, table):
    numbers = published.of(table)
    num_checked = 0
    for row in paper[table]["rows"]:
        m = row.get("m", paper[table].get("m", max(grids.shipped(table).shots)))
        is_row = (numbers.method == published.method_of(row["method"])) & numbers.m.isin([results.FILLS_CONTEXT, m])
        if row.get("model"):
            is_row &= numbers.model.isin([published.SIZES[row["model"]], *published.SHORT_OWN_MODELS.values()])
        cells = row.get("scores", {}).items()
        printed = {
            task: f"{cell['mean']:.1f} ± {cell['std']:.1f}{' (†)' if cell.get('truncated') else ''}"
            for task, cell in cells
        }
        printed |= {task: f"{best:.1f} ({row['permille'][task]} ‰)" for task, best in row.get("best", {}).items()}
        shown = {number.task: number.score for number in numbers[is_row].itertuples()}
        assert {task: shown[task.lower()].text() for task in printed} == printed
        assert "avg" not in row or shown[published.AVERAGE].text(2) == f"{row['avg']:.2f}"
        num_checked += len(printed) + ("avg" in row)
    assert num_checked == len(numbers) > 0
