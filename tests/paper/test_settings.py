"""A grid's options: what cannot be is one line with the choices."""

import dataclasses

import pytest

from knnprompt_jax import errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"experiment": ""}, "experiment is required"),
        ({"tasks": "mr,poems"}, "unknown task 'poems'; choose from sst2"),
        ({"methods": "icl,bert"}, "unknown method 'bert': choose from icl"),
        ({"regime": "zero-shot"}, "choose from full, few-shot"),
        ({"direction": "sideways"}, "direction='sideways': choose from forward, released"),
        ({"shots": (4, 0)}, "shots=.4, 0.: at least 1 is required"),
        ({"shares": (0.25, 0.75)}, "shares=.*: at most 0.5 is allowed"),
        ({"shares": (0.0,)}, "shares=.*: at least"),
        ({"prior_settings": "A,D"}, "choose from A, B, C"),
        ({"rows": -1}, "rows=-1: at least 0"),
        ({"shard": "9/8"}, "--shard=9/8: write it as i/n with i from 1 to n"),
        ({"shard": "0/8"}, "--shard=0/8"),
        ({"shard": "half"}, "--shard=half"),
        ({"dtype": "int4"}, "choose from float32, bfloat16"),
        ({"label_token": "middle"}, "choose from last, first"),
    ],
)
def test_impossible_options_are_refused(grid, change, message):
    with pytest.raises(errors.UserError, match=message):
        dataclasses.replace(grid, **change)


def test_names_are_read_from_lists(grid):
    given = dataclasses.replace(grid, tasks=" mr, trec,mr,", models="tiny,gpt2-xl", methods="knn", shard="3/8")
    assert given.task_names == ["mr", "trec"]
    assert given.model_names == ["tiny", "gpt2-xl"]
    assert given.shard_numbers == (2, 8)
