"""A small world for whole grids: a task of two classes, a tiny GPT-2 whose context holds few demonstrations."""

import dataclasses
import pathlib

import pytest

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.inference import lm
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.study import paper_tables
from knnprompt_jax.tasks.task import Example, Task
from tests.report.conftest import make_record, page_and_sections, page_path, results  # noqa: F401
from tests.study.small_world import job, own_cache, world  # noqa: F401


class Settings(grids.PriorSettings, grids.SplitSettings, grids.ImbalanceSettings):
    """The options of every grid, so that a test may turn a grid of one into a grid of another.

    It refuses nothing that only a single table or figure refuses.
    """

    def __post_init__(self) -> None:
        grids.GridSettings.__post_init__(self)


def make_grid(experiment="robustness", methods="icl,knn", **axes):
    given = {"seeds": (1,), "shots": (4, 8)} | axes
    return Settings(experiment=experiment, tasks=("mr",), models=("tiny",), methods=tuple(methods.split(",")), **given)


def cells_of(given, rows, most=4):
    return list(dict.fromkeys(paper_tables.of(given).cells(given, rows, most)))


@pytest.fixture
def passes(monkeypatch):
    """The numbers of prompts of each pass, and of compilations after it."""
    made, queue_pass = [], lm.QueuedPass

    def counted(model, groups, *args):
        result = queue_pass(model, groups, *args)
        made.append((sum(len(group.suffixes) for group in groups), model.statistics.compilations))
        return result

    monkeypatch.setattr(lm, "QueuedPass", counted)
    return made


@pytest.fixture
def grid(world: pathlib.Path, tmp_path: pathlib.Path) -> grids.GridSettings:  # noqa: F811
    """Settings of a robustness grid on the world."""
    places = {"data_dir": str(world / "data"), "output": str(tmp_path / "results")}
    return dataclasses.replace(make_grid(seeds=(1, 2), shots=(5, 7), rows=11, **places), models=(str(world / "model"),))


@pytest.fixture
def rows() -> inputs.Rows:
    """23 train rows of class "0" and 19 of "1", and 7 and 6 to classify."""
    task = Task("two", ("text",), "{text}:", ("0", "1"), ("no", "yes"))

    def make(counts: tuple[int, int], name: str) -> list[Example]:
        labels = ["0", "1"] * min(counts) + ["0"] * (counts[0] - counts[1])
        return [Example({"text": f"{name} {row}"}, label, row) for row, label in enumerate(labels)]

    return inputs.Rows(task, make((23, 19), "train"), make((7, 6), "test"))
