"""Run `check --quick` with only the checks in which devices and processes work together.

`tests/devices/test_planted.py` runs the checks of one device. All flags are those of `check`.
"""

import pathlib
import runpy

from knnprompt_jax.devices import check_runner, model_checks, search_checks

TOGETHER = ("deterministic mode", "search", "meshes", "main job")
check_runner.CORRECTNESS = {name: check_runner.CORRECTNESS[name] for name in TOGETHER}
model_checks.sharding.model_axes = lambda config, devices: [2]
search_checks._SEARCHES = (("dense", "kl"), ("factored", "reverse_kl"))
search_checks._LARGE_SEARCHES = ()  # On one device.

if __name__ == "__main__":
    runpy.run_path(str(pathlib.Path(__file__).parents[2] / "experiments" / "check.py"), run_name="__main__")
