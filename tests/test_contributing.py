"""Every step of CONTRIBUTING.md, done in a copy of the project."""

import os
import pathlib
import re
import shlex
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


@pytest.mark.parametrize("name", SECTIONS)
def test_each_step_can_be_done(name, tmp_path):
    for folder in ("knnprompt_jax", "configs", "experiments", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    for file in ("docs/methods.md", "pyproject.toml"):
        shutil.copyfile(ROOT / file, tmp_path / file)
    output = ""
    for step in STEP.finditer(SECTIONS[name]):
        if step["file"]:
            (tmp_path / step["file"]).write_text(step["text"], encoding="utf-8")
        elif step["changed"]:
            path = tmp_path / step["changed"]
            before = path.read_text(encoding="utf-8")
            assert before.count(step["old"]) == 1, (step["changed"], step["old"])
            path.write_text(before.replace(step["old"], step["new"]), encoding="utf-8")
        else:
            output += "".join(run(line, tmp_path) for line in step["commands"].splitlines())
    assert DONE[name] in output


def run(command: str, folder: pathlib.Path) -> str:
    words = shlex.split(command)
    assert words[0] == "python"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
