"""The comparison's binary: methods and their options from the command line, mistakes as one line with status 2."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def start(*options: str, binary: str = "compare.py") -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "experiments" / binary), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=ROOT, env=environment, check=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config.methods=icl,bert"], "unknown method 'bert': choose from icl, knn,"),
        (["--config.options.knn.kk=5"], "'kk'; --help lists them"),
        (["--config.options.linc.rows=few"], "few"),
    ],
)
def test_mistakes_are_one_line_and_status_2(options, message):
    done = start(*options)
    assert done.returncode == 2 and not done.stdout
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_help_lists_every_option():
    text = start("--help").stdout
    for option in ('--config.methods="all"  Names with commas', "--config.shots=32", "--config.options="):
        assert option in text


def test_the_embedded_default(tmp_path):
    """Two methods on the default model and the shipped task, few shots and one seed."""
    done = start(
        "--config.methods=hidden_centroids,knn",
        "--config.options.knn.k=1",
        "--config.shots=3",
        "--config.demo_shots=1",
        "--config.seeds=(7,)",
        f"--config.output={tmp_path}",
    )
    assert done.returncode == 0, done.stderr
    assert "Hidden Calibration" in done.stdout and "kNN Prompting" in done.stdout and "LM tokens" in done.stdout
    assert len(list(tmp_path.iterdir())) == 2
    tables = start(f"--records={tmp_path}", "--markdown", binary="tabulate_records.py").stdout
    assert "### 3 shots a class, 1 seed" in tables and "| Hidden Calibration | " in tables
