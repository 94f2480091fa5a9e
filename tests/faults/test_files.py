"""New files with a fault at each call."""

import pytest

from knnprompt_jax.common import files
from tests.faults import injection

TWICE = pytest.mark.parametrize("twice", [False, pytest.param(True, marks=pytest.mark.long)], ids=["once", "twice"])


def contents(folder):
    """Return the content of each file that is no draft."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith(".")}


def write_file(folder):
    with files.new_file(folder / "file") as draft:
        draft.write_bytes(b"new" * 5000)


def earlier_file(folder):
    (folder / "file").write_text("old")


@TWICE
@pytest.mark.parametrize("prepare", [lambda folder: None, earlier_file], ids=["new", "over an earlier one"])
def test_new_file(folder, prepare, twice):
    tally = injection.every_fault(folder, write_file, contents, prepare, twice=twice)
    assert tally.survived == tally.tried > 20
