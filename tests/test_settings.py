"""The declared options name what there is, and a command answers `--help` without a slow library."""

import pytest

from knnprompt_jax import console
from knnprompt_jax.methods import registry
from knnprompt_jax.models import config
from knnprompt_jax.paper import experiments
from knnprompt_jax.settings import grids, methods, models, stores
from knnprompt_jax.store import distances, representations
from knnprompt_jax.store import store as store_lib
from tests import processes

HELP = """
import runpy, sys
sys.argv = [sys.argv[1], "--help"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(sorted({"flax", "jax", "numpy", "pandas", "scipy", "sklearn", "transformers"} & set(sys.modules)))
"""


def test_declared_names_are_those_of_the_registries():
    assert tuple(distances.DISTANCES) == stores.DISTANCES
    normalised = [
        each.name for each in distances.DISTANCES.values() if each.representation in representations.NORMALISED
    ]
    assert tuple(normalised) == stores.DISTRIBUTION_DISTANCES
    assert tuple(store_lib.KINDS) == stores.KINDS
    assert tuple(config.DTYPES) == models.DTYPES
    assert set(registry.METHODS) == set(methods.METHODS)
    assert set(experiments.EXPERIMENTS) == set(grids.GRIDS)


@pytest.mark.parametrize("command", sorted(console.COMMANDS))
def test_help_imports_no_slow_library(command):
    printed, _ = processes.run("-c", HELP, console.binary(command))
    assert "--" in printed and printed.endswith("[]\n")
