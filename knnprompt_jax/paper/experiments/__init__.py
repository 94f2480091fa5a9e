"""The paper's tables and figures. To add one, add a file that ends in its `EXPERIMENTS`, its name to `_FILES`,
and its options to `settings.grids`.
"""

import importlib

from knnprompt_jax.paper import experiment

_FILES = ("sst2", "max_shots", "comparisons", "data_scaling", "axes", "case_study")
EXPERIMENTS: dict[str, experiment.Experiment] = {
    each.name: each for file in _FILES for each in importlib.import_module(f"{__name__}.{file}").EXPERIMENTS
}
