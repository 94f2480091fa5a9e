"""The paper's tables and figures. Adding one is a file here, which ends in its `EXPERIMENT`, and the file's name in `_NAMES`."""

import importlib
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.paper import experiment, settings

_NAMES = (  # In the paper's order.
    *("max_shots", "few_shot", "low_resource", "data_scaling", "prompt_compose", "upper_bound", "robustness"),
    *("split_strategy", "distance", "prior_reliance", "choice_of_k", "imbalance", "whole_vs_partial", "fine_tuning"),
    *("sst2", "case_study"),
)
EXPERIMENTS: dict[str, experiment.Experiment] = {
    name: importlib.import_module(f"{__name__}.{name}").EXPERIMENT for name in _NAMES
}


def get(name: str) -> experiment.Experiment:
    """The table or figure of that name; raises UserError with the choices where there is none."""
    if name not in EXPERIMENTS:
        raise errors.UserError(f"experiment={name!r}: choose from {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def settings_of(config: Any) -> type[settings.GridSettings]:
    """The declaration of a config's options; raises UserError where its experiment is none."""
    return get(config.experiment).settings
