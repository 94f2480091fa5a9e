"""A folder in memory, where writing is fast."""

import pathlib
import tempfile

import pytest

MEMORY = pathlib.Path("/dev/shm")


@pytest.fixture
def folder(tmp_path):
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as name:
        yield pathlib.Path(name)
