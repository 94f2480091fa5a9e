"""The attention kernel is used only where it proves itself: a wrong one and one that raises give way to XLA's."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import logging

from knnprompt_jax.common import errors
from knnprompt_jax.inference import lm, states
from knnprompt_jax.models import attention, kernel_proof, prefix_kernel
from tests import prompt_groups, random_weights

PROMPTS = prompt_groups.make_random(11, 2, 61, (5, 9))
KERNEL = prefix_kernel.attend


def wrong(*arguments, **options):
    """Return what a kernel returns that forgets the last token of the prefix."""
    rows, length, rest = arguments[:7], arguments[7], arguments[8:]
    return KERNEL(*rows, length - 1, *rest, **options)


def rounded(q, *arguments, **options):
    """Return what a kernel returns that rounds float32 queries to 10 bits, as TF32 products do."""
    return KERNEL(jax.lax.reduce_precision(q, 8, 10), *arguments, **options)


def refused(*arguments, **options):
    raise NotImplementedError("Mosaic failed\nto compile")


def interpreted(kernel, *arguments, **options):
    return kernel(*arguments[:11], **options | {"interpret": True})


@pytest.fixture
def use(monkeypatch):
    """Return a function that gives CPUs a kernel, interpreted."""

    def use(kernel=KERNEL, switch="auto"):
        monkeypatch.setenv(kernel_proof.SWITCH, switch)
        monkeypatch.setattr(attention, "KERNEL_PLATFORMS", ("cpu",))
        monkeypatch.setitem(prefix_kernel.TILES, "cpu", prefix_kernel.TILES["gpu"])
        monkeypatch.setattr(prefix_kernel, "attend", functools.partial(interpreted, kernel))
        kernel_proof.is_correct.cache_clear()
        jax.clear_caches()  # Of traces of another kernel.

    yield use
    kernel_proof.is_correct.cache_clear()


@pytest.fixture
def warnings(monkeypatch):
    """Collect the logged warnings."""
    logged = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: logged.append(text % values))
    return logged


def model_of(dtype=jnp.float32):
    return lm.LanguageModel.from_decoder(random_weights.small("gpt2", dtype), range(211), step_tokens=256)


@pytest.mark.parametrize(
    ("kernel", "dtype", "reason"),
    [
        (wrong, "bfloat16", r"its outputs differ by [\d.]+, at most 0.0079 is rounding"),
        (rounded, "float32", r"its outputs differ by [\d.]+, at most 0.00012 is rounding"),
        (refused, "float32", "NotImplementedError: Mosaic failed to compile"),
    ],
)
def test_a_kernel_that_is_wrong_or_raises_is_not_used(use, warnings, kernel, dtype, reason):
    use(kernel)
    assert not kernel_proof.is_correct(kernel_proof.Case(jax.devices()[0], dtype, 16, 1, False))
    [warning] = warnings
    assert warning.startswith(f"cpu: the attention kernel for {dtype} is not used")
    assert re.search(reason, warning), warning


def test_a_failing_kernel_gives_way_to_the_attention_of_xla(use, warnings, monkeypatch):
    """States are those without a kernel, to the bit; a second model of the process gives no second warning."""
    monkeypatch.setenv("KNNPROMPT_CACHE", "off")
    use(switch="off")
    plain = states.read(model_of(), PROMPTS)
    use(wrong)
    for _ in range(2):
        jax.tree.map(np.testing.assert_array_equal, states.read(model_of(), PROMPTS), plain)
    assert len(warnings) == 1
    use(wrong, switch="on")
    trusted = states.read(model_of(), PROMPTS)
    assert abs(trusted.hidden_NE - plain.hidden_NE).max() > 0.01, "on uses the kernel without a proof"
    use(switch="auto")
    proven = states.read(model_of(), PROMPTS)
    np.testing.assert_allclose(proven.hidden_NE, plain.hidden_NE, atol=1e-4)
    assert (np.asarray(proven.hidden_NE) != np.asarray(plain.hidden_NE)).any(), "the kernel must run"


def test_the_switch(monkeypatch):
    for switch, expected in (("off", False), ("on", True), ("auto", True)):
        monkeypatch.setenv(kernel_proof.SWITCH, switch)
        assert (kernel_proof.is_expected("tpu"), kernel_proof.is_expected("cpu")) == (expected, False)
    monkeypatch.setenv(kernel_proof.SWITCH, "of")
    with pytest.raises(errors.UserError, match="KNNPROMPT_PREFIX_KERNEL=of: choose from on, off, auto"):
        kernel_proof.switch()
