"""The paper's tables and figures. To add one, add a file that ends in its `EXPERIMENTS`, its name to `_FILES`,
and its options to `settings.grids`.
"""

import importlib

from knnprompt_jax.paper import experiment

# In the order of the page.
_FILES = ("data_scaling", "comparisons", "axes", "case_study", "max_shots", "sst2")
EXPERIMENTS: dict[str, experiment.Experiment] = {
    experiment.name: experiment
    for file in _FILES
    for experiment in importlib.import_module(f"{__name__}.{file}").EXPERIMENTS
}
