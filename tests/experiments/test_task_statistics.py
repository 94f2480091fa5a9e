"""The binary prints a line a task, and users' mistakes as one line with status 2."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "experiments/task_statistics.py", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_table(shared):
    done = run(f"--data_dir={shared / 'data'}", f"--tokenizer={shared / 'tokenizers' / 'gpt2'}", "--tasks=trec,cb")
    assert done.returncode == 0, done.stderr
    trec, cb = done.stdout.splitlines()[-2:]
    assert " ".join(trec.split()) == "trec | 6 | 17.6 | 8 ( 1 %) 8 [ 8] | 17 ( 5 %) 16 [16]"
    assert " ".join(cb.split()).startswith("cb | 3 | 90.8 |")


def test_mistakes_are_one_line_with_status_2(tmp_path):
    done = run(f"--data_dir={tmp_path}", f"--tokenizer={tmp_path}", "--tasks=trek")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "unknown task 'trek'; choose from sst2" in done.stderr
