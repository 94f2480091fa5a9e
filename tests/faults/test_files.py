"""New files and folders with a fault at each call."""

import pytest

from knnprompt_jax import files
from tests.faults import injection

TWICE = pytest.mark.parametrize("twice", [False, pytest.param(True, marks=pytest.mark.long)], ids=["once", "twice"])


def contents(folder):
    """Return the content of each file that is no draft."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith(".")}


def write_file(folder):
    with files.new_file(folder / "file") as draft:
        draft.write_bytes(b"new" * 5000)


def write_folder(folder):
    path = folder / "store"
    with files.lock(path), files.refusals(path):
        files.recover(path)
        draft = files.begin_folder(path)
        (draft / "below").mkdir()
        for name in ("one", "two", "below/three"):
            (draft / name).write_text(name)
        files.finish_folder(path)


def earlier_file(folder):
    (folder / "file").write_text("old")


def earlier_folder(folder):
    (folder / "store").mkdir()
    (folder / "store" / "old").write_text("old")


def folder_content(folder):
    files.recover(folder / "store")
    return contents(folder)


@TWICE
@pytest.mark.parametrize("prepare", [lambda folder: None, earlier_file], ids=["new", "over an earlier one"])
def test_new_file(folder, prepare, twice):
    tally = injection.every_fault(folder, write_file, contents, prepare, twice=twice)
    assert tally.survived == tally.tried > 20


@TWICE
@pytest.mark.parametrize("prepare", [lambda folder: None, earlier_folder], ids=["new", "over an earlier one"])
def test_new_folder(folder, prepare, twice):
    tally = injection.every_fault(folder, write_folder, folder_content, prepare, twice=twice)
    assert tally.survived == tally.tried > 50
