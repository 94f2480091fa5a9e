"""The package's public names come when asked for, and the package itself comes at once."""

import subprocess
import sys

import pytest

import knnprompt_jax as kp


def test_importing_starts_nothing():
    code = """
import sys
import knnprompt_jax as kp
assert set(kp.__all__) <= set(dir(kp))
print(kp.Task.__name__, kp.UserError.__name__, sorted({"jax", "numpy", "transformers", "pandas"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Task", "UserError", "[]"]


@pytest.mark.parametrize("name", kp.__all__)
def test_public_names_are_there(name):
    assert getattr(kp, name).__name__ == name


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'Classifier'"):
        _ = kp.Classifier
