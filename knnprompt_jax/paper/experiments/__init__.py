"""The paper's tables and figures. Adding some is a file here, which ends in its `EXPERIMENTS`, and the file's name in `_FILES`."""

import importlib

from knnprompt_jax import errors
from knnprompt_jax.paper import experiment

_FILES = (
    *("sst2", "max_shots", "comparisons", "data_scaling", "robustness", "split_strategy"),
    *("prior_reliance", "choice_of_k", "imbalance", "case_study"),
)
EXPERIMENTS: dict[str, experiment.Experiment] = {
    each.name: each for file in _FILES for each in importlib.import_module(f"{__name__}.{file}").EXPERIMENTS
}


def get(name: str) -> experiment.Experiment:
    """The table or figure of that name; raises UserError with the choices where there is none."""
    if name not in EXPERIMENTS:
        raise errors.UserError(f"experiment={name!r}: choose from all, {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
