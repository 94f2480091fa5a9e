"""Progress: a bar on a terminal; otherwise a line every ten seconds, and none for shorter passes."""

import types

import pytest
import tqdm

from knnprompt_jax.common import progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until `clock.now` is set."""
    clock = types.SimpleNamespace(now=1000.0)
    monkeypatch.setattr(tqdm.tqdm, "_time", None, raising=False)
    monkeypatch.setattr("tqdm.std.time", lambda: clock.now)
    return clock


@pytest.mark.parametrize(("seconds", "lines"), [(1, []), (4, ["60%"]), (11, ["20%", "40%", "60%", "80%", "100%"])])
def test_a_line_every_ten_seconds(clock, capsys, seconds, lines):
    with progress.bar(35, "seed 1") as report:
        for _ in range(5):
            clock.now += seconds
            report(7, 70)
    output = capsys.readouterr().err
    assert [line.removeprefix("seed 1: ").partition("|")[0].strip() for line in output.splitlines()] == lines
    assert "\r" not in output and all(f"{70 / seconds:,.0f} suffix tokens/s" in line for line in output.splitlines())


def test_one_bar_for_the_whole_file_replaces_those_of_its_passes(clock, capsys):
    """It advances within a pass, and counts rows exactly after it, whatever the pass reported."""
    with progress.whole(200, "row") as settle:
        settle(100)
        for finished in (120, 140):
            with progress.bar(20, "a batch") as report:
                clock.now += 31
                report(10, 70)
            settle(finished)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("|")[0].strip() for line in lines] == ["55%", "65%"]
    assert all("<" in line and "row/s" in line and "a batch" not in line for line in lines), "the time that is left"
    with progress.bar(3) as report:
        report(3, 30)
