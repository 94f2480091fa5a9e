"""Public names are imported on first use, so that the package itself starts nothing."""

from tests import processes


def test_importing_starts_nothing():
    code = """
import sys
import knnprompt_jax as kp
assert set(kp.__all__) <= set(dir(kp))
print(kp.Task.__name__, kp.UserError.__name__, sorted({"jax", "numpy", "transformers", "pandas"} & set(sys.modules)))
"""
    assert processes.run("-c", code)[0].split() == ["Task", "UserError", "[]"]
