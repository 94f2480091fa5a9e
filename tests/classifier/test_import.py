"""Public names are imported on first use, so that the package itself starts nothing."""

import subprocess
import sys

import pytest

import knnprompt_jax as kp

NAMES = ["AutoClassifier", "KNNPrompting", "LanguageModel", "Task", "UserError", "demo_model", "load"]


def test_importing_starts_nothing():
    code = """
import sys
import knnprompt_jax as kp
assert set(kp.__all__) <= set(dir(kp))
print(kp.Task.__name__, kp.UserError.__name__, sorted({"jax", "numpy", "transformers", "pandas"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Task", "UserError", "[]"]


def test_public_names():
    assert kp.__all__ == NAMES == [getattr(kp, name).__name__ for name in NAMES]
    with pytest.raises(AttributeError, match="no attribute 'Classifier'"):
        _ = kp.Classifier
