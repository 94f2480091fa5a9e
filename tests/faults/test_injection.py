"""The faults are felt: writers that take no care are caught."""

import pytest

from tests.faults import injection


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_at_once(folder):
    (folder / "file").write_bytes(b"new" * 1000)


def append(folder):
    with (folder / "file").open("ab") as file:
        file.write(b"line\n")


def without_a_look_at_the_end(folder):
    if not (folder / "file").exists():
        (folder / "file").write_text("whole")


@pytest.mark.parametrize("writer", [write_at_once, append, without_a_look_at_the_end])
def test_careless_writers(folder, writer):
    with pytest.raises((AssertionError, OSError)):
        injection.every_fault("careless", folder, writer, contents)
    del injection.TALLIES["careless"]


def test_a_death_ends_all_changes(folder):
    """The file is torn, and neither `finally` nor closing it adds anything."""
    with injection.fault("kill", 2), pytest.raises(injection.Killed):
        try:
            write_at_once(folder)
        finally:
            (folder / "file").unlink()
    assert contents(folder) == {"file": (b"new" * 1000)[:1500]}


def test_a_full_disk_stays_full(folder):
    with injection.fault("ENOSPC", 1) as injected:
        for _ in range(3):
            with pytest.raises(OSError, match="No space left on device"):
                write_at_once(folder)
    assert injected.happened and not contents(folder)
