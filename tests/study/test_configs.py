"""The config files of the paper's tables and figures: each belongs to its experiment."""

import pytest

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.study.paper_tables import EXPERIMENTS, of


def test_every_experiment_has_a_config_and_every_config_an_experiment(pytestconfig):
    found = {path.stem for path in (pytestconfig.rootpath / "configs").glob("*.py")}
    assert found == set(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_config_belongs_to_its_experiment(name):
    """A config with the name of another experiment would write its records into the other's folder."""
    settings = grids.shipped(name)
    assert settings.experiment == name
    assert of(settings).name == name
