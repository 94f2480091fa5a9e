"""The paper's tables and figures.

To add one, write a file that ends in its `EXPERIMENTS`, add it to `_FILES`, and write its settings to a file in
`configs/`.
"""

from knnprompt_jax import errors
from knnprompt_jax.paper import experiment
from knnprompt_jax.paper.experiments import axes, case_study, comparisons, data_scaling, max_shots, sst2
from knnprompt_jax.settings import grids

_FILES = (data_scaling, comparisons, axes, case_study, max_shots, sst2)  # In the order of the page.
EXPERIMENTS: dict[str, experiment.Experiment] = {each.name: each for file in _FILES for each in file.EXPERIMENTS}


def of(settings: grids.GridSettings) -> experiment.Experiment:
    """Return the experiment that the settings name.

    Raises:
        UserError: there is no such experiment, or it has other options.
    """
    name = settings.experiment
    if name not in EXPERIMENTS:
        raise errors.UserError(f"--experiment={name}: choose from {', '.join(EXPERIMENTS)}")
    if not isinstance(settings, EXPERIMENTS[name].settings):
        raise errors.UserError(f"--experiment={name}: give --config=configs/{name}.py instead")
    return EXPERIMENTS[name]
