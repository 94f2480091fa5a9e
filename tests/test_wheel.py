"""The wheel, in an environment of its own: from a table to answers in an empty folder, with nothing of the repository."""

import csv
import json
import os
import pathlib
import random
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

SAID = {
    "billing": (
        "I was charged {n} times for {thing}",
        "refund {thing}, please",
        "the invoice of {thing} has {n} errors",
    ),
    "outage": ("{thing} is down since {n} hours", "nothing loads in {thing}", "{thing} shows server error {n}00"),
    "access": (
        "I cannot log in to {thing}",
        "my password for {thing} does not work",
        "{thing} locked me out {n} times",
    ),
    "shipping": ("where is my parcel with {thing}?", "{thing} came {n} days late", "the box of {thing} was broken"),
    "feature": (
        "could {thing} have a dark mode?",
        "please add {n} languages to {thing}",
        "I wish {thing} could export",
    ),
    "praise": ("thank you, {thing} is great", "I love {thing}, {n} stars", "{thing} made my day"),
}
THINGS = ("the shop", "my account", "the app", "the printer", "the new phone", "your site", "the archive", "the tablet")


def tickets(classes: tuple[str, ...], count: int, seed: int) -> list[tuple[str, str]]:
    """Texts with their classes, `count` of each."""
    rng = random.Random(seed)
    return [
        (rng.choice(SAID[name]).format(thing=rng.choice(THINGS), n=rng.randint(2, 9)), name)
        for _ in range(count)
        for name in classes
    ]


def write(path: pathlib.Path, header: tuple[str, ...], rows: list[tuple]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def read(path: pathlib.Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


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


def test_the_job_of_a_support_desk(folder):
    """Tickets of five classes, some labelled wrongly, which are found and corrected; later a sixth class."""
    old, new = tuple(SAID)[:5], tuple(SAID)[5:]
    rows = tickets(old, 24, seed=1)
    wrong = {31: "billing", 58: "outage", 77: "feature"}
    assert all(rows[number][1] != label for number, label in wrong.items())
    train = [(text, wrong.get(number, label)) for number, (text, label) in enumerate(rows)]
    write(folder / "tickets.csv", ("text", "label"), train)
    write(folder / "held_out.csv", ("text", "label"), tickets(old, 12, seed=2))
    knnprompt(folder, "fit", "--train_file=tickets.csv", "--store=desk", "--model=tiny", "--demo_shots=0")

    def accuracy() -> float:
        knnprompt(folder, "evaluate", "--store=desk", "--input=held_out.csv", "--output=measured")
        return json.loads((folder / "measured" / "measures.json").read_text())["accuracy"]

    before = accuracy()
    assert before > 0.6
    knnprompt(folder, "look", "--store=desk", "--output=seen")
    suggested = {int(row["id"]): row["suggested"] for row in read(folder / "seen" / "suggestions.csv")}
    found = [(number, rows[number][1]) for number in wrong if suggested.get(number)]
    assert len(found) >= 2
    write(folder / "corrected.csv", ("id", "label"), found)
    knnprompt(folder, "fit", "--store=desk", "--relabel=corrected.csv")
    assert accuracy() >= before - 0.05
    write(folder / "more.csv", ("text", "label"), tickets(new, 24, seed=3))
    assert "praise" in knnprompt(folder, "fit", "--store=desk", "--append=more.csv")
    asked = tickets((*old, *new), 5, seed=4)
    write(folder / "asked.csv", ("number", "text"), [(f"Q-{i}", text) for i, (text, _) in enumerate(asked)])
    knnprompt(folder, "predict", "--store=desk", "--input=asked.csv", "--output=answers.csv", "--keep=all")
    answers = read(folder / "answers.csv")
    assert [row["number"] for row in answers] == [f"Q-{i}" for i in range(len(asked))]
    right = [row["label"] == label for row, (_, label) in zip(answers, asked, strict=True)]
    assert sum(right) / len(right) > 0.6 and any(right[place] for place in range(5, len(right), 6)), "praise too"


def test_configs_are_found_from_any_folder(folder):
    plan = ("--models=tiny", "--tasks=demo", "--data_dir=", "--restore_dropped=False")
    told = knnprompt(folder, "paper", "--config=configs/paper.py:distance", *plan, "--dry_run")
    assert "records" in told
    assert "Released" not in knnprompt(folder, "compare", "--help")


def test_the_command_by_itself(folder):
    assert knnprompt(folder, "--version") == "knnprompt_jax 0.2.0\n"
    assert "\n  fit        Fit a classifier to a table" in knnprompt(folder, "--help")
    assert list(folder.parent.glob("environment/lib/python*/site-packages/knnprompt_jax/py.typed"))
    assert knnprompt(folder, "fitt", status=2).startswith("error: unknown command 'fitt': choose from fit, evaluate,")
