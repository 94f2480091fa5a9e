"""The paper's binary as a user starts it: plan, records, mistakes; and a death in the middle of a grid."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from knnprompt_jax.runs import records
from tests.runs.conftest import world  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(*options: str) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / "experiments" / "paper.py"), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, cwd=ROOT, env=environment, **pipes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config=configs/paper.py:table_7"], "table_7"),
        (["--config.models=./nowhere", "--config.tasks=demo"], "no such folder: ./nowhere"),
        (["--config.methods=bert"], "unknown method 'bert': choose from icl"),
        (["--config.tasks=poems"], "unknown task 'poems'; choose from sst2"),
        (["--config.shard=3/2"], "shard='3/2': write it as i/n"),
        (["--config.models=tiny", "--config.tasks=demo", "--config.seeds=()"], "few_shot: nothing to run"),
    ],
)
def test_mistakes_are_one_line_and_status_2(options, message):
    process = start(*options)
    out, error = process.communicate(timeout=600)
    assert process.returncode == 2 and not out
    assert message in error and error.startswith("error: ") and error.count("\n") == 1


def test_a_killed_run_leaves_whole_records_and_goes_on(world, tmp_path):  # noqa: F811
    folder = tmp_path / "robustness"
    options = [
        "--config=configs/paper.py:robustness",
        *("--config.tasks=mr", f"--config.models={world / 'model'}", f"--config.data_dir={world / 'data'}"),
        *("--config.methods=knn", "--config.seeds=1,2,3,4", "--config.shots=3,5", f"--config.output={tmp_path}"),
    ]
    process = start(*options)
    deadline = time.monotonic() + 300
    while len(list(folder.glob("*.json"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert 2 <= len(before) < 8
    assert all(one.predicted for one in records.read_all(folder))
    process = start(*options)
    out, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    assert f"8 records, of which {len(before)} are there already" in out
    assert "0:00:00 left" in error
    assert len(records.read_all(folder)) == 8
    after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert before.items() <= after.items() and len(after) == 8
