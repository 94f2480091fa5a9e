"""A folder in memory, where writing is fast; and the table of what was tried, at the end of the tests (of one process: -n0)."""

import pathlib
import tempfile

import pytest

from tests.faults import injection

MEMORY = pathlib.Path("/dev/shm")


@pytest.fixture
def folder(tmp_path):
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as name:
        yield pathlib.Path(name)


def pytest_terminal_summary(terminalreporter):
    if not injection.TALLIES:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line(f"{'':40}{'tried':>8}{'same result':>14}{'told in a line':>16}{'lost':>6}")
    for name, tally in injection.TALLIES.items():
        lost = tally.tried - tally.survived - tally.refused
        terminalreporter.write_line(f"{name:40}{tally.tried:8}{tally.survived:14}{tally.refused:16}{lost:6}")
