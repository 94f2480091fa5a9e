"""A grid's options: invalid values give one line with the choices."""

import dataclasses

import pytest

from knnprompt_jax import errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"experiment": ""}, "experiment is required"),
        ({"tasks": "mr,poems"}, "unknown task 'poems'; choose from sst2"),
        ({"methods": "icl,bert"}, "unknown method 'bert'"),
        ({"shots": (4, 0)}, "shots=.4, 0.: at least 1 is required"),
        ({"shares": (0.25, 0.75)}, "shares=.*: at most 0.5 is allowed"),
        ({"prior_settings": "A,D"}, "choose from A, B, C"),
        ({"shard": "9/8"}, "--shard=9/8: write it as i/n with i from 1 to n"),
        ({"shard": "0/8"}, "--shard=0/8"),
        ({"shard": "half"}, "--shard=half"),
    ],
)
def test_invalid_options_are_refused(grid, change, message):
    with pytest.raises(errors.UserError, match=message):
        dataclasses.replace(grid, **change)


def test_names_are_split_at_commas(grid):
    given = dataclasses.replace(grid, tasks=" mr, trec,mr,", models="tiny,gpt2-xl", shard="3/8")
    assert (given.task_names, given.model_names, given.shard_numbers) == (["mr", "trec"], ["tiny", "gpt2-xl"], (2, 8))
