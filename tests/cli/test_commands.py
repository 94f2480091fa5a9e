"""What a command imports, and the options that need more than a declaration."""

import pytest

from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.common import errors
from tests import processes


def test_predict_imports_nothing_that_it_does_not_need():
    """These take more seconds to import than a text takes to classify."""
    program = "import sys, knnprompt_jax.commands.predict_job; print(*sys.modules)"
    printed, _ = processes.run("-c", program)
    needless = {"pandas", "scipy.stats", "sklearn", "transformers", "jax.experimental.pallas", "matplotlib"}
    needless |= {"knnprompt_jax.methods.all_methods"}
    assert not needless & set(printed.split())


def test_shares_of_classes():
    assert [commands.PriorOptions(class_prior=text).prior for text in ("", "uniform")] == [None, "uniform"]
    text = 'no=0.2, "New York, NY=3e-1",a=b=.5'
    assert commands.PriorOptions(class_prior=text).prior == {"no": 0.2, "New York, NY": 0.3, "a=b": 0.5}


@pytest.mark.parametrize("text", ["a=0.5,a=0.9", "a=0.5,b", "a=0.5,b=c", "a=0.5,"])
def test_shares_that_are_no_shares_are_refused(text):
    with pytest.raises(errors.UserError, match="^class_prior=.*give each label once"):
        _ = commands.PriorOptions(class_prior=text).prior
