"""Every step of CONTRIBUTING.md, done in a copy of the project."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M | re.S))
STEP = re.compile(
    r"^`(?P<file>[\w./]+)`:\n\n```\w+\n(?P<text>.*?)^```$"
    r"|^In `(?P<changed>[\w./]+)`, (?P<tick>`+)(?P<old>.+?)(?P=tick) becomes (?P=tick)(?P<new>.+?)(?P=tick)\.$"
    r"|^```bash\n(?P<commands>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
DONE = {
    "A method": "Nearest by angle",
    "A distance": "kNN Prompting",
    "A task": "--rule=votes --k=1",
    "A model family": "1543714304",
    "A table of the paper": "page: report",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What the commands of each section print after the edits of all sections, in one process."""
    copy, commands = tmp_path_factory.mktemp("copy"), {}
    for folder in ("knnprompt_jax", "configs", "experiments", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "docs").mkdir()
    for file in ("docs/methods.md", "pyproject.toml"):
        shutil.copyfile(ROOT / file, copy / file)
    for name, section in SECTIONS.items():
        commands[name] = []
        for step in STEP.finditer(section):
            if step["file"]:
                (copy / step["file"]).write_text(step["text"], encoding="utf-8")
            elif step["changed"]:
                path = copy / step["changed"]
                before = path.read_text(encoding="utf-8")
                assert before.count(step["old"]) == 1, (step["changed"], step["old"])
                path.write_text(before.replace(step["old"], step["new"]), encoding="utf-8")
            else:
                commands[name] += step["commands"].splitlines()
    done = subprocess.run(
        [sys.executable, "-m", "tests.commands"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", SECTIONS)
def test_each_step_can_be_done(name, outputs):
    assert DONE[name] in outputs[name]
