"""Run `check --quick` with small checks in which devices and processes work together.

`tests/devices/test_planted.py` runs the other checks, and `tests/test_parallel.py` the main job by two processes. All
flags are those of `check`.
"""

import pathlib
import runpy

from knnprompt_jax.devices import check_runner, checks, model_checks, search_checks

TOGETHER = ("search", "meshes")
check_runner.CORRECTNESS = {name: check_runner.CORRECTNESS[name] for name in TOGETHER}
model_checks.sharding.model_axes = lambda config, devices: [2]
checks.NUM_QUERIES = 7
search_checks._SEARCHES = (("dense", "kl"), ("factored", "reverse_kl"))
search_checks._LARGE_SEARCHES = ()  # On one device.

if __name__ == "__main__":
    runpy.run_path(str(pathlib.Path(__file__).parents[2] / "experiments" / "check.py"), run_name="__main__")
