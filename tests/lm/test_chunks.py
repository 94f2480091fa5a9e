"""Readings that die, really killed, and go on: what comes out is what an uninterrupted reading gives."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.lm import chunks
from tests.lm import killed

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model():
    return killed.make_model()


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """The states of an uninterrupted reading."""
    return killed.read(tmp_path_factory.mktemp("whole") / "chunks", model)


def check_equal(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


def start(folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    # What one start compiled, the next finds.
    compiled = {"JAX_COMPILATION_CACHE_DIR": f"{folder}-compiled", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, str(ROOT / "tests" / "lm" / "killed.py"), str(folder)]
    return subprocess.Popen(command, env=environment | compiled)


def test_the_states_are_those_of_reading_at_once(model, whole):
    at_once = model.states(killed.make_prompts())
    jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=1e-4), whole, at_once)


def test_killed_at_random_moments_it_ends_the_same(model, whole, tmp_path):
    rng, folder = np.random.default_rng(11), tmp_path / "chunks"
    for least in np.sort(rng.choice(np.arange(1, 10), 2, replace=False)):
        process = start(folder)
        while len(list(folder.glob("chunk-*"))) < least:
            assert process.poll() is None
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = model.statistics.prompts
    check_equal(killed.read(folder, model), whole)
    assert model.statistics.prompts - before < killed.NUM_PROMPTS


def halt(after):
    """A progress report that stops the reading after so many prompts."""

    def report(prompts, tokens):
        report.done += prompts
        if report.done >= after:
            raise KeyboardInterrupt

    report.done = 0
    return report


@pytest.fixture
def half(model, tmp_path):
    """The folder of a reading that stopped halfway."""
    with pytest.raises(KeyboardInterrupt):
        killed.read(tmp_path / "chunks", model, progress=halt(60))
    return tmp_path / "chunks"


def test_finished_chunks_are_not_read_again(half, model, whole):
    reports, before = [], model.statistics.prompts
    assert len(list(half.glob("chunk-*"))) == 5
    check_equal(killed.read(half, model, progress=lambda prompts, tokens: reports.append(prompts)), whole)
    assert reports[0] == 5 * killed.CHUNK and sum(reports) == killed.NUM_PROMPTS
    assert model.statistics.prompts - before == killed.NUM_PROMPTS - 5 * killed.CHUNK


def swap(folder):
    content = [(folder / f"chunk-00000{number}").read_bytes() for number in (1, 2)]
    for number, bytes_ in zip((2, 1), content, strict=True):
        (folder / f"chunk-00000{number}").write_bytes(bytes_)


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (lambda folder: (folder / "chunk-000002").unlink(), 1),
        (lambda folder: os.truncate(folder / "chunk-000002", 99), 1),
        (lambda folder: (folder / "chunk-000002").write_bytes(b""), 1),
        (swap, 2),
    ],
)
def test_damaged_and_swapped_chunks_are_read_again(damage, lost, half, model, whole):
    damage(half)
    before = model.statistics.prompts
    check_equal(killed.read(half, model), whole)
    assert model.statistics.prompts - before == killed.NUM_PROMPTS - (5 - lost) * killed.CHUNK


def test_the_chunks_of_another_reading_are_not_taken_as_its_own(half, model, whole):
    """As after a clearing that died when the plan was gone already."""
    (half / "plan.json").unlink()
    with pytest.raises(KeyboardInterrupt):
        chunks.read(half, model, killed.make_prompts(), {"fingerprint": "g"}, killed.CHUNK, progress=halt(1))
    (half / "plan.json").unlink()
    before = model.statistics.prompts
    check_equal(killed.read(half, model), whole)
    assert model.statistics.prompts - before >= killed.NUM_PROMPTS - 5 * killed.CHUNK


def test_an_unfinished_reading_of_something_else_is_told(half, model):
    with pytest.raises(errors.UserError, match="an unfinished build that differs in chunk: remove it, or choose"):
        killed.read(half, model, chunk=13)


def test_clearing_leaves_nothing(half):
    chunks.clear(half)
    assert not list(half.parent.iterdir())
    chunks.clear(half)
