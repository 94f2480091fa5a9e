"""Names of devices."""

import importlib.util

import pytest

from knnprompt_jax import errors
from knnprompt_jax.planning import targets


@pytest.mark.parametrize(("name", "size"), [("v5e:4x4", 16), ("v5p:2x2x4", 16), ("h100:8", 8), ("cpu:3", 3)])
def test_number_of_devices(name, size):
    assert targets.get(name, compile=False).size == size


@pytest.mark.parametrize("name", ["v5e", "v5e:3x5", "h100:", "h100:0", "h100:2x4", "cpu:x", "b200:8", ""])
def test_an_unknown_name_lists_the_choices(name):
    with pytest.raises(errors.UserError, match=r"topology='.*': choose from .*v5e:4x4.*h100:8"):
        targets.get(name)


def test_a_missing_compiler_is_an_error_for_tpus_alone(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    assert targets.get("h100:2").size == 2 and targets.get("v5e:2x2", compile=False).size == 4
    with pytest.raises(errors.UserError, match=r"v5e:2x2.*pip install 'knnprompt_jax\[tpu\]'"):
        targets.get("v5e:2x2")
