"""A grid's options: what cannot be is one line with the choices."""

import dataclasses

import pytest

from knnprompt_jax import errors


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
