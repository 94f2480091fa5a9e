"""The faults work: careless writers are caught."""

import pytest

from tests.faults import injection


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_at_once(folder):
    (folder / "file").write_bytes(b"new" * 1000)


def append(folder):
    with (folder / "file").open("ab") as file:
        file.write(b"line\n")


def write_unless_it_exists(folder):
    if not (folder / "file").exists():
        (folder / "file").write_text("whole")


@pytest.mark.parametrize("writer", [write_at_once, append, write_unless_it_exists])
def test_careless_writers(folder, writer):
    with pytest.raises((AssertionError, OSError)):
        injection.every_fault(folder, writer, contents)
