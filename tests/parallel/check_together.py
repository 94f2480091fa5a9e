"""Run `check --quick` with only the checks in which devices and processes work together.

`tests/check/test_planted.py` runs the checks of one device. All flags are those of `check`.
"""

import pathlib
import runpy

from knnprompt_jax.check import deterministic_mode, environment, main_job, meshes, runner, search

runner._CORRECTNESS = (environment, deterministic_mode, search, meshes, main_job)
search._SEARCHES = (("dense", "kl"), ("factored", "reverse_kl"), ("dense", "l2"))
search._LARGE_SEARCHES = ()  # On one device.

if __name__ == "__main__":
    runpy.run_path(str(pathlib.Path(__file__).parents[2] / "experiments" / "check.py"), run_name="__main__")
