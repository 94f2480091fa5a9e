"""Readings that die, really killed, and go on: what comes out is what an uninterrupted reading gives."""

import errno
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from knnprompt_jax import errors, files
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


def test_of_a_clearing_that_dies_nothing_is_read_again(half, model, whole, monkeypatch):
    """It dies when the first file is gone already."""

    def dies(folder, **_):
        if folder.exists():
            next(folder.iterdir()).unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(files.shutil, "rmtree", dies)
        chunks.clear(half)
    assert not half.exists() and list(half.parent.iterdir())
    before = model.statistics.prompts
    check_equal(killed.read(half, model), whole)
    assert model.statistics.prompts - before == killed.NUM_PROMPTS
    chunks.clear(half)
    assert not list(half.parent.iterdir())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"{}"])
def test_a_damaged_plan_is_told(content, half, model):
    (half / "plan.json").write_bytes(content)
    with pytest.raises(errors.UserError, match="an unfinished build that differs in .*: remove it, or choose another"):
        killed.read(half, model)


def test_a_flipped_bit_of_a_chunk_is_computed_again(half, model, whole):
    content = (half / "chunk-000002").read_bytes()
    for place in (
        0,
        31,
        32,
        40,
        len(content) // 2,
        len(content) - 1,
    ):  # In the sum, the archive's head, arrays and its end.
        (half / "chunk-000002").write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        assert chunks._Finished(half, plan_hash(half)).read(2) is None
    (half / "chunk-000002").write_bytes(content)
    assert chunks._Finished(half, plan_hash(half)).read(2) is not None
    check_equal(killed.read(half, model), whole)


def plan_hash(folder):
    plan = json.loads((folder / "plan.json").read_text())
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).digest()


@pytest.mark.parametrize("at", ["file", "read-only folder"])
def test_a_folder_that_cannot_be_written_is_told(at, tmp_path, model, monkeypatch):
    """Permissions do not bind the superuser, so that the refusal is injected."""
    if at == "file":
        (tmp_path / "chunks").write_text("")
    else:
        refusal = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "chunks"))
        monkeypatch.setattr(pathlib.Path, "mkdir", lambda *_, **__: (_ for _ in ()).throw(refusal))
    with pytest.raises(errors.UserError, match="chunks.*: (Permission denied|Not a directory|File exists)"):
        killed.read(tmp_path / "chunks", model)
