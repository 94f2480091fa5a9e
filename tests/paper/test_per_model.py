"""Options of single models: grids are split into groups whose models run alike."""

import dataclasses

import pytest

from knnprompt_jax import errors
from knnprompt_jax.paper import job, per_model
from knnprompt_jax.runs import records

TEXT = "opt-30b mesh.model=8 dtype=bfloat16; gpt2-xl batch=8192"


def told(groups):
    return [
        [(each.experiment, each.models, each.dtype, each.batch, each.mesh.model, each.methods) for each in group]
        for group in groups
    ]


def test_grids_are_split_by_what_their_models_run_with(grid):
    several = dataclasses.replace(grid, models="gpt2-large,gpt2-xl,facebook/opt-30b", methods="icl,fine_tuning_bert")
    one = dataclasses.replace(grid, experiment="distance", models="gpt2-xl", methods="knn", batch=8192)
    assert told(per_model.split([several, one], TEXT)) == [
        [("robustness", "gpt2-large", "float32", grid.batch, 1, "icl,fine_tuning_bert")],
        [("robustness", "gpt2-xl", "float32", 8192, 1, "icl"), ("distance", "gpt2-xl", "float32", 8192, 1, "knn")],
        [("robustness", "facebook/opt-30b", "bfloat16", grid.batch, 8, "icl")],
    ]


def test_models_that_methods_train_run_once(grid):
    trained = dataclasses.replace(grid, models="gpt2-xl", methods="fine_tuning_bert")
    ((part,),) = per_model.split([trained], TEXT)
    assert (part.models, part.methods, part.batch) == ("", "fine_tuning_bert", grid.batch)


def test_a_gate_keeps_its_dtype(grid):
    gate = dataclasses.replace(grid, experiment="sst2", models="gpt2-xl")
    ((part,),) = per_model.split([gate], "gpt2-xl dtype=bfloat16 batch=8192")
    assert (part.dtype, part.batch) == ("float32", 8192)


def test_a_grid_without_methods_is_not_lost(grid):
    """So that it is told that there is nothing to run."""
    ((part,),) = per_model.split([dataclasses.replace(grid, models="gpt2-xl", methods="")], TEXT)
    assert part.method_names == []


def test_without_options_of_their_own_grids_stay_as_they_are(grid):
    assert per_model.split([grid, grid], "") == [[grid, grid]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpt2-xl batch=many", "'batch=many': write model by model its options"),
        ("gpt2-xl seed=1", "'seed=1': write model by model its options"),
        ("gpt2-xl dtype=", "'dtype=': write"),
        ("gpt2-xl dtype=int4", "dtype='int4': choose from"),
        ("opt-66b batch=1", "no grid has the model 'opt-66b'; choose from gpt2-xl"),
    ],
)
def test_mistakes_are_told(grid, text, message):
    grids = [dataclasses.replace(grid, models="gpt2-xl")]
    with pytest.raises(errors.UserError, match=message):
        per_model.check(grids, text)
        per_model.split(grids, text)


def test_a_model_is_run_with_its_own(grid, tmp_path):
    """The records say with what."""
    name = grid.models.rpartition("/")[-1]
    job.run(dataclasses.replace(grid, seeds=(1,), per_model=f"{name} dtype=bfloat16 batch=512"))
    found = records.read_all(tmp_path / "results" / "robustness")
    assert len(found) == 3 and {record.settings["dtype"] for record in found} == {"bfloat16"}
