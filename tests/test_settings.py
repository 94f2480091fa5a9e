"""The declared options name what there is."""

from knnprompt_jax.models import config
from knnprompt_jax.settings import models


def test_declared_names_are_those_of_the_registries():
    assert tuple(config.DTYPES) == models.DTYPES
