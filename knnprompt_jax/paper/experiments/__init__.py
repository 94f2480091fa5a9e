"""The paper's tables and figures. To add one, add a file that ends in its `EXPERIMENTS`, and its name to `_FILES`."""

import importlib

from knnprompt_jax import errors
from knnprompt_jax.paper import experiment

_FILES = ("sst2", "max_shots", "comparisons", "data_scaling", "prior_reliance", "axes", "case_study")
EXPERIMENTS: dict[str, experiment.Experiment] = {
    each.name: each for file in _FILES for each in importlib.import_module(f"{__name__}.{file}").EXPERIMENTS
}


def get(name: str) -> experiment.Experiment:
    """Return the experiment of that name; raise UserError with the choices if there is none."""
    if name not in EXPERIMENTS:
        raise errors.UserError(f"no experiment {name!r}; choose from {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
