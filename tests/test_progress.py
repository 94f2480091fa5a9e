"""Progress without a terminal: a line now and then, and none for what is over sooner."""

import types

import pytest
import tqdm

from knnprompt_jax import progress


@pytest.fixture
def clock(monkeypatch):
    """Time that stands still until it is set: `clock.now`."""
    clock = types.SimpleNamespace(now=1000.0)
    monkeypatch.setattr(tqdm.tqdm, "_time", None, raising=False)
    monkeypatch.setattr("tqdm.std.time", lambda: clock.now)
    return clock


@pytest.mark.parametrize(("seconds", "lines"), [(2, []), (11, ["60%"]), (31, ["20%", "40%", "60%", "80%", "100%"])])
def test_a_line_every_half_minute(clock, capsys, seconds, lines):
    """Five parts of as many seconds each."""
    with progress.bar(35, "seed 1") as report:
        for _ in range(5):
            clock.now += seconds
            report(7, 70)
    told = capsys.readouterr().err
    assert [line.removeprefix("seed 1: ").partition("|")[0].strip() for line in told.splitlines()] == lines
    assert "\r" not in told and all(f"{70 / seconds:,.0f} suffix tokens/s" in line for line in told.splitlines())


def test_what_counts_no_tokens_tells_no_rate_of_them(clock, capsys):
    with progress.bar(2, "seed 1", unit="step") as report:
        clock.now += 31
        report(1, 0)
        clock.now += 31
        report(1, 0)
    told = capsys.readouterr().err.splitlines()
    assert [("s/step" in line, "tokens" in line) for line in told] == [(True, False)] * 2
