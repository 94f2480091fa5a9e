"""The paper's binary as a user starts it, and a death in the middle of a grid."""

import os
import signal
import time

from knnprompt_jax.runs import records
from tests.runs.conftest import world  # noqa: F401


def test_a_killed_run_leaves_whole_records_and_goes_on(start, world, tmp_path):  # noqa: F811
    folder = tmp_path / "robustness"
    options = [
        "--config=configs/paper.py:robustness",
        *("--tasks=mr", f"--models={world / 'model'}", f"--data_dir={world / 'data'}"),
        *("--methods=knn", "--seeds=1,2,3,4", "--shots=3,5", f"--output={tmp_path}"),
    ]
    process = start("paper", *options)
    deadline = time.monotonic() + 300
    while len(list(folder.glob("*.json"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert 2 <= len(before) < 8
    assert all(one.predicted for one in records.read_all(folder))
    process = start("paper", *options)
    out, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    assert f"8 records, of which {len(before)} are there already" in out
    assert "0:00:00 left" in error
    assert len(records.read_all(folder)) == 8
    after = {path.name: path.stat().st_mtime_ns for path in folder.glob("[!.]*")}
    assert before.items() <= after.items() and len(after) == 8
    assert all(path.suffix == ".lock" and not path.stat().st_size for path in folder.glob(".*")), (
        "empty, held by nobody"
    )
