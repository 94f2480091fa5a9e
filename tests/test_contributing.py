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
    r"|^```diff\n(?P<diff>.*?)^```$"
    r"|^```bash\n(?P<commands>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
DONE = {
    "A method": "Nearest by angle",
    "A distance": "kNN Prompting",
    "A task": "saved: weather",
    "A model family": "1543714304",
}


def change(root, file, hunk):
    """Replace the lines of a hunk that stand after " " or "-", which the file has once, by those after " " or "+"."""
    old, new = ("".join(f"{line[1:]}\n" for line in hunk.splitlines() if line[0] != other) for other in "+-")
    before = (root / file).read_text(encoding="utf-8")
    assert before.count(old) == 1, (file, old)
    (root / file).write_text(before.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Return the output of the commands of each section after the edits of all sections, in one process."""
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
            elif step["diff"]:
                for hunk in step["diff"].removeprefix("--- ").split("\n--- "):
                    change(copy, *hunk.split("\n", 1))
            else:
                commands[name] += step["commands"].splitlines()
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    streams = {"input": json.dumps(commands), "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-m", "tests.shell"], cwd=copy, env=environment, check=False, **streams)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", SECTIONS)
def test_each_step_can_be_done(name, outputs):
    assert DONE[name] in outputs[name]
