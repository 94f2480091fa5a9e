"""Calls that devices are given ahead of the first that is waited for: the states are the same, and overflow is seen to."""

import numpy as np
import pytest

from knnprompt_jax import errors, lm
from knnprompt_jax.lm import programs
from knnprompt_jax.prompts import packing
from tests.parallel import small


def read(ahead, monkeypatch, sharpness=1.0):
    """States, and what was done in order: each call as it was enqueued, each report of one that is finished."""
    model, done = small.make_decoder("gpt2"), []
    kernel = model.blocks.attention.q_kernel
    kernel.set_value(sharpness * kernel[...])
    model = lm.LanguageModel(model, range(208), step_tokens=128)
    call = model.execution._call

    def listened(name, *arguments, **options):
        done.append(name)
        return call(name, *arguments, **options)

    monkeypatch.setattr(model.execution, "_call", listened)
    monkeypatch.setattr(programs, "calls_ahead", lambda platform: ahead)
    prompts = small.make_prompts(71)
    shapes = packing.choose_shapes(prompts.groups, 128)
    hidden_NE, _ = model.run_pass(
        prompts, lambda group: shapes[bool(len(group.prefix_P))], progress=lambda *_: done.append("done")
    )
    return np.asarray(hidden_NE), done


def test_the_next_call_is_enqueued_first(monkeypatch):
    """The same states and as many reports."""
    (want, waiting), (got, order) = (read(ahead, monkeypatch) for ahead in (0, 1))
    np.testing.assert_array_equal(got, want)
    assert waiting[:5] == ["prefix", "states", "done", "states", "done"]
    assert order[:5] == ["prefix", "states", "states", "done", "done"]
    assert sorted(waiting) == sorted(order)


@pytest.mark.parametrize("ahead", [0, 1])
def test_calls_that_overflow_are_done_again(ahead, monkeypatch):
    states, order = read(ahead, monkeypatch, sharpness=60.0)
    assert np.isfinite(states).all() and order.count("states") > order.count("done")


def test_what_is_not_finite_is_refused(monkeypatch):
    with pytest.raises(errors.UserError, match="not finite"):
        read(1, monkeypatch, sharpness=np.nan)
