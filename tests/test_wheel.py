"""The wheel, in a separate environment and an empty folder without the repository, turns a table into predictions."""

import os
import pathlib
import re
import shlex
import shutil
import site
import subprocess
import sys
import venv
import zipfile

import pandas as pd
import pytest

from knnprompt_jax.tasks import catalogue

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Whatever an interpreter of that environment opens in the repository ends it; the libraries may lie there too.
GUARD = """
import sys

def refuse(event, arguments, root={root!r}, libraries={libraries!r}):
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(root + "/"):
        if not arguments[0].startswith(libraries):
            raise SystemExit("opened in the repository: " + arguments[0])

sys.addaudithook(refuse)
"""

TASK = catalogue.get("demo")


def tickets(split: str) -> pd.DataFrame:
    """A third of the demo's rows, with their words as labels."""
    rows = catalogue.load_rows(TASK, split)[::3]
    return pd.DataFrame(
        {"text": [row.fields["sentence"] for row in rows], "label": [TASK.label_words[int(row.label)] for row in rows]}
    )


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
    """Return the output of the installed command."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [folder.parent / "environment" / "bin" / "knnprompt", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


def test_readme_section_on_own_texts(folder):
    """Its commands run in their order on tables of the demo's rows, with the tiny model instead of an installed one."""
    (block,) = re.findall(r"^## Your own texts\n.*?```bash\n(.*?)```", README, re.MULTILINE | re.DOTALL)
    install, *commands = block.replace("--model=gemma-3-270m", "--model=tiny").splitlines()
    assert install.startswith("pip install")
    tickets("train").to_csv(folder / "train.csv", index=False)
    test = tickets("dev_subsample")
    test.to_csv(folder / "test.csv", index=False)
    test["text"].rename(index="Q-{}".format).to_csv(folder / "rows.csv", index_label="id")
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        assert program == "knnprompt"
        knnprompt(folder, *arguments)
    assert (folder / "evaluation" / "index.html").exists()
    assert (folder / "look" / "index.html").exists()
    answers = pd.read_json(folder / "labels.jsonl", lines=True)
    assert answers["id"].tolist() == [f"Q-{index}" for index in range(len(test))]
    assert test["label"][test["label"] == answers["label"]].nunique() > 3


def test_configs_are_found_from_any_folder(folder):
    plan = ("--models=tiny", "--tasks=demo", "--data_dir=")
    output = knnprompt(folder, "paper", "--config=configs/distance.py", *plan, "--dry_run")
    assert "records" in output
    assert "Released" not in knnprompt(folder, "compare", "--help")


def test_an_editable_install_is_a_path_so_that_a_clone_of_the_same_name_cannot_hide_the_package(folder):
    source = folder.parent / "source"
    build = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, folder.parent], cwd=source, check=True, capture_output=True)
    (wheel,) = folder.parent.glob("*editable*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".pth"))
        assert archive.read(name).decode().split() == [str(source)]


def test_the_command_by_itself(folder):
    assert knnprompt(folder, "--version") == "knnprompt_jax 0.3.0\n"
    assert "\n  fit        Fits a classifier to a table" in knnprompt(folder, "--help")
    assert list(folder.parent.glob("environment/lib/python*/site-packages/knnprompt_jax/py.typed"))
    assert knnprompt(folder, "fitt", status=2).startswith("error: unknown command 'fitt': choose from fit, evaluate,")
