"""The declared options name what there is."""

from knnprompt_jax.models import config
from knnprompt_jax.settings import models, stores
from knnprompt_jax.store import distances, representations
from knnprompt_jax.store import store as store_lib


def test_declared_names_are_those_of_the_registries():
    assert tuple(distances.DISTANCES) == stores.DISTANCES
    normalised = [
        each.name for each in distances.DISTANCES.values() if each.representation in representations.NORMALISED
    ]
    assert tuple(normalised) == stores.DISTRIBUTION_DISTANCES
    assert tuple(store_lib.KINDS) == stores.KINDS
    assert tuple(config.DTYPES) == models.DTYPES
