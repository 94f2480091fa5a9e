"""Whole grids on a small world: what is read, what is written, and what a restart or a death leaves."""

import dataclasses
import pathlib
import shutil

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.report import records
from knnprompt_jax.study import paper_experiment as cells
from knnprompt_jax.study import paper_grid as grid_lib
from tests.study.small_world import choosing, world  # noqa: F401

pytestmark = pytest.mark.usefixtures("loaded_once")


def folder(grid):
    return pathlib.Path(grid.output) / grid.experiment


def test_a_vote_of_every_k_has_keys_of_its_own(grid):
    """In the paper's choice of k, k may exceed the number of anchors per class; elsewhere it may not."""
    knn = dataclasses.replace(grid.knn, k=7)
    grid = dataclasses.replace(grid, methods=("knn",), shots=(5,), seeds=(1,), regime="few-shot", knn=knn)
    (usual,) = (run for group in grid_lib.plan(grid) for run in group.runs)
    every = grid_lib.plan(dataclasses.replace(grid, experiment="choice_of_k"))
    (other,) = (run for group in every for run in group.runs if run.cell["k"] == 7)
    assert (usual.name, usual.options, usual.problem.digest) == (other.name, other.options, other.problem.digest)
    assert usual.key != other.key


def test_where_nothing_is_left_in_context_learning_is_used_again(grid):
    grid = dataclasses.replace(grid, methods=("auto", "icl", "knn", "tfidf"), shots=(1,), seeds=(1,), regime="few-shot")
    grid_lib.run(grid)
    auto, icl, knn, tfidf = records.read_all(folder(grid))
    assert knn.predicted == icl.predicted
    assert (icl.note, knn.note) == ("", cells.REUSED)
    assert (knn.method, knn.shots, knn.demo_shots) == ("knn", 1, 1)
    for learner in (auto, tfidf):
        assert cells.REUSED not in learner.note and learner.predicted != icl.predicted, "learns without anchors"


def test_a_restart_runs_only_what_is_missing(grid, passes, capsys):
    grid = dataclasses.replace(grid, cache_gb=0)
    grid_lib.run(grid)
    sorted(folder(grid).iterdir())[1].unlink()
    passes.clear()
    for num_records in (5, 6):
        grid_lib.run(grid)
        assert f"{num_records} of 6 records exist" in capsys.readouterr().out
    assert len(passes) == 1


def test_shards_share_out_all_groups(grid):
    grid = dataclasses.replace(grid, seeds=(1, 2, 3, 4, 5), regime="few-shot")
    whole = grid_lib.plan(grid)
    shards = [grid_lib.plan(dataclasses.replace(grid, shard=f"{number}/3")) for number in (1, 2, 3)]
    names = [[run.file_name for group in groups for run in group.runs] for groups in (whole, *shards)]
    assert sum(names[1:], []) == names[0] and all(names)
    grid_lib.run(dataclasses.replace(grid, shard="1/3"))
    assert sorted(path.name for path in folder(grid).iterdir()) == sorted(names[1])


def test_a_dry_run_needs_no_weights_and_writes_nothing(grid, world, tmp_path, passes, capsys):  # noqa: F811
    bare = tmp_path / "bare"
    shutil.copytree(world / "model", bare, ignore=shutil.ignore_patterns("*.safetensors"))
    grid_lib.run(dataclasses.replace(grid, models=(str(bare),), dry_run=True))
    text = capsys.readouterr().out
    assert "0 of 6 records exist" in text and "prompts in 2 passes" in text
    assert not passes and not pathlib.Path(grid.output).exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"experiment": "table_7"}, "--experiment=table_7"),
        ({"shots": ()}, "robustness: no shots"),
        ({"methods": ("icl_ensemble", "knn"), "shots": (3,)}, "--methods: 'icl_ensemble' does not apply to task 'mr'"),
    ],
)
def test_invalid_input_gives_an_error_before_anything_is_written(grid, change, message):
    with pytest.raises(errors.UserError, match=message):
        grid_lib.run(dataclasses.replace(grid, **change))
    assert not folder(grid).exists()
