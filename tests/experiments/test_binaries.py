"""Binaries as a user starts them, each in a process of its own."""

import os
import pathlib
import signal
import subprocess
import sys
import time

from knnprompt_jax.runs import records
from tests.runs.conftest import world  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(binary: str, *options: str) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / "experiments" / f"{binary}.py"), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes)


def finish(binary: str, *options: str) -> tuple[str, str]:
    process = start(binary, *options)
    out, error = process.communicate(timeout=900)
    assert process.returncode == 0, error
    return out, error


def test_the_main_job_is_a_comparison_of_two_methods(tmp_path):
    """On the tiny model and the shipped task, few shots and one seed."""
    few = ["--model=tiny", "--shots=3", "--demo_shots=1", "--seeds=7", f"--output={tmp_path}", "--options.knn.k=1"]
    done, _ = finish("knn_prompting", *few)
    assert "In-context learning" in done and "kNN Prompting" in done and "LM tokens" in done
    assert len(list(tmp_path.glob("*.json"))) == 2
    resumed, _ = finish("compare", *few, "--methods=icl,knn", "--resume")
    assert resumed.splitlines()[3:6] == done.splitlines()[3:6]
    tables, _ = finish("report", f"--records={tmp_path}", "--format=markdown")
    assert "3 shots per class, 1 seed" in tables and "| kNN Prompting | " in tables


def test_a_killed_grid_leaves_whole_records_and_goes_on(world, tmp_path):  # noqa: F811
    folder = tmp_path / "robustness"
    options = [
        "--config=configs/paper.py:robustness",
        *("--tasks=mr", f"--models={world / 'model'}", f"--data_dir={world / 'data'}"),
        *("--methods=knn", "--seeds=1,2,3,4", "--shots=3,5", f"--output={tmp_path}"),
    ]
    process = start("paper", *options)
    deadline = time.monotonic() + 300
    while len(list(folder.glob("*.json"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert 2 <= len(before) < 8
    assert all(one.predicted for one in records.read_all(folder))
    out, error = finish("paper", *options)
    assert f"8 records, of which {len(before)} are finished" in out
    assert "0:00:00 left" in error
    assert len(records.read_all(folder)) == 8
    after = {path.name: path.stat().st_mtime_ns for path in folder.glob("[!.]*")}
    assert before.items() <= after.items() and len(after) == 8
    locks = list(folder.glob(".*"))
    assert all(path.suffix == ".lock" and not path.stat().st_size for path in locks), "empty, held by nobody"
