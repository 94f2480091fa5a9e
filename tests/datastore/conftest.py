"""A world of anchors and queries for all tests of stores."""

import pytest

from tests.datastore import worlds


@pytest.fixture(scope="session")
def world() -> worlds.World:
    return worlds.make_world()
