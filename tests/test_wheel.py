"""The wheel, in an environment of its own: from a table to answers in an empty folder, with nothing of the repository."""

import csv
import json
import os
import pathlib
import shutil
import site
import subprocess
import sys
import venv

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Whatever an interpreter of that environment opens in the repository ends it; the libraries may lie there too.
GUARD = """
import sys

def refuse(event, arguments, root={root!r}, libraries={libraries!r}):
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(root + "/"):
        if not arguments[0].startswith(libraries):
            raise SystemExit("opened in the repository: " + arguments[0])

sys.addaudithook(refuse)
"""
ROWS = [("I was charged twice", "billing"), ("refund me", "billing"), ("the invoice is wrong", "billing")]
ROWS += [("the site is down", "outage"), ("nothing loads", "outage"), ("server error", "outage")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """An empty folder, and beside it an environment with the wheel and access to the libraries of this one."""
    place = tmp_path_factory.mktemp("wheel")
    source, environment = place / "source", place / "environment"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("knnprompt_jax", "experiments", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", place, source], check=True)
    venv.create(environment, symlinks=True)
    (wheel,) = place.glob("*.whl")
    to = ["--python", environment / "bin" / "python"]
    subprocess.run([*pip, *to, "install", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    libraries = tuple(site.getsitepackages())
    (packages / "libraries.pth").write_text("\n".join(libraries))
    (packages / "sitecustomize.py").write_text(GUARD.format(root=str(ROOT), libraries=(*libraries, sys.prefix)))
    (place / "empty").mkdir()
    return place / "empty"


def knnprompt(folder: pathlib.Path, *arguments: str, status: int = 0) -> str:
    """What the installed command prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [folder.parent / "environment" / "bin" / "knnprompt", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


def test_from_a_table_to_answers(folder):
    with (folder / "train.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("ticket", "text", "team"), *((f"T-{i}", *row) for i, row in enumerate(ROWS))])
    fitted = knnprompt(
        *(folder, "fit", "--train_file=train.csv", "--label_column=team", "--store=mine", "--model=tiny"),
        *("--demo_shots=1", "--knn.k=1"),
    )
    assert "    Text: {text}\n    Team:\n" in fitted and "saved: mine/" in fitted
    told = knnprompt(folder, "evaluate", "--store=mine", "--input=train.csv", "--label_column=team")
    content = json.loads((folder / "evaluation" / "measures.json").read_text())
    assert content["rows"] == 6 and f"accuracy {100 * content['accuracy']:.1f} %" in told
    knnprompt(folder, "predict", "--store=mine", "--input=train.csv", "--output=labels.jsonl")
    answers = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    right = sum(answer["label"] == label for answer, (_, label) in zip(answers, ROWS, strict=True))
    assert right / 6 == content["accuracy"]
    knnprompt(folder, "look", "--store=mine")
    assert "<svg" in (folder / "look" / "index.html").read_text(encoding="utf-8")


def test_configs_are_found_from_any_folder(folder):
    plan = ("--config.models=tiny", "--config.tasks=demo", "--config.data_dir=", "--config.restore_dropped=False")
    told = knnprompt(folder, "paper", "--config=configs/paper.py:distance", *plan, "--dry_run")
    assert "records" in told
    assert "Released" not in knnprompt(folder, "compare", "--help")


def test_the_command_by_itself(folder):
    assert knnprompt(folder, "--version") == "knnprompt_jax 0.2.0\n"
    assert "\n  fit                Makes a classifier of a table" in knnprompt(folder, "--help")
    assert knnprompt(folder, "fitt", status=2).startswith("error: unknown command 'fitt': choose from fit, evaluate,")


def test_types_are_announced(folder):
    (typed,) = folder.parent.glob("environment/lib/python*/site-packages/knnprompt_jax/py.typed")
    assert typed.is_file()
