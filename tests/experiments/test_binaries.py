"""Binaries as a user starts them, each in a process of its own."""

import signal
import time

import pytest

from knnprompt_jax.report import records
from tests import processes
from tests.study.small_world import world  # noqa: F401


@pytest.mark.long
def test_a_killed_grid_leaves_whole_records_and_goes_on(world, tmp_path):  # noqa: F811
    folder = tmp_path / "robustness"
    options = [
        "--config=configs/robustness.py",
        *("--tasks=mr", f"--models={world / 'model'}", f"--data_dir={world / 'data'}"),
        *("--methods=knn", "--seeds=1,2,3,4", "--shots=3,5", f"--output={tmp_path}"),
    ]
    process = processes.start("experiments/paper.py", *options)
    deadline = time.monotonic() + 300
    while len(list(folder.glob("*.json"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert 2 <= len(before) < 8
    assert all(one.predicted for one in records.read_all(folder))
    out, error = processes.run("experiments/paper.py", *options)
    assert f"8 records, of which {len(before)} are finished" in out
    assert "0:00:00 left" in error
    assert len(records.read_all(folder)) == 8
    after = {path.name: path.stat().st_mtime_ns for path in folder.glob("[!.]*")}
    assert before.items() <= after.items() and len(after) == 8
    locks = list(folder.glob(".*"))
    assert all(path.suffix == ".lock" and not path.stat().st_size for path in locks), "empty, held by nobody"
