"""The comparison's binaries as a user starts them: methods and options from the command line, mistakes in one line."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(binary: str, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "experiments" / f"{binary}.py"), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=ROOT, env=environment, check=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config.task=poems"], "choose from"),
        (["--config.methods=icl,bert"], "unknown method 'bert': choose from icl, knn,"),
        (["--config.options.knn.kk=5"], "kk"),
        (["--config.options.linc.rows=few"], "few"),
    ],
)
def test_mistakes_are_one_line_and_status_2(options, message):
    done = start("compare", *options)
    assert done.returncode == 2 and not done.stdout
    assert message in done.stderr and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_the_main_job_is_a_comparison_of_two_methods(tmp_path):
    """On the default model and the shipped task, few shots and one seed."""
    few = ["--config.shots=3", "--config.demo_shots=1", "--config.seeds=7", f"--config.output={tmp_path}"]
    done = start("knn_prompting", *few, "--config.options.knn.k=1")
    assert done.returncode == 0, done.stderr
    assert "In-context learning" in done.stdout and "kNN Prompting" in done.stdout and "LM tokens" in done.stdout
    assert len(list(tmp_path.iterdir())) == 2
    resumed = start("compare", *few, "--config.options.knn.k=1", "--config.methods=icl,knn", "--config.resume")
    assert resumed.returncode == 0 and resumed.stdout.splitlines()[3:6] == done.stdout.splitlines()[3:6]
    tables = start("tabulate_records", f"--records={tmp_path}", "--markdown").stdout
    assert "### 3 shots per class, 1 seed" in tables and "| kNN Prompting | " in tables
