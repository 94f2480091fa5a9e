"""A world of anchors and queries for all tests of stores."""

import pytest

from tests.store import worlds


@pytest.fixture(scope="session")
def world() -> worlds.World:
    return worlds.make_world()
