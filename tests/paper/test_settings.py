"""A grid's options: what cannot be is one line with the choices."""

import dataclasses

import pytest

from knnprompt_jax import errors, options
from knnprompt_jax.settings import grids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ("mr", "poems")}, "unknown task 'poems'; choose from sst2"),
        ({"methods": ("icl", "bert")}, "unknown method 'bert': choose from icl"),
        ({"shares": (0.25, 0.75)}, "shares=.*: at most 0.5 is allowed"),
        ({"shard": "9/8"}, "--shard=9/8: write it as i/n with i from 1 to n"),
        ({"shard": "half"}, "--shard=half"),
    ],
)
def test_impossible_options_are_refused(grid, change, message):
    with pytest.raises(errors.UserError, match=message):
        dataclasses.replace(grid, **change)


def test_names_are_read_from_lists_without_repetitions():
    config = {
        "experiment": "sst2",
        "tasks": " mr, trec,mr,",
        "models": "tiny,gpt2-xl",
        "methods": "knn",
        "shard": "3/8",
    }
    given = options.from_config(grids.GridSettings, config)
    assert (given.tasks, given.models, given.methods) == (("mr", "trec"), ("tiny", "gpt2-xl"), ("knn",))
    assert given.shard_numbers == (2, 8)
