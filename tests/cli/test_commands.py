"""Files, folders, models and tasks that options name: wrong ones are refused before anything slow is imported."""

import pytest

from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.common import errors
from tests import processes

WRONG = [
    (commands.PredictionSettings, {"classifier": "nope", "text": "a"}, "nope: No such file or directory"),
    (commands.EvaluationSettings, {"classifier": "good", "input": "folder"}, "folder: it is not a file"),
    (commands.FitSettings, {"classifier": "folder", "train_file": "rows.csv"}, "folder: it exists and is not a file"),
    (commands.FitSettings, {"classifier": "new", "train_file": "rows.csv", "task": "nope.yaml"}, "nope.yaml: .*No such file"),
    (grids.GridSettings, {"experiment": "few_shot", "models": ("tiny", "./no")}, "model './no': no such"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "good").write_text("a classifier")
    (tmp_path / "rows.csv").write_text("text,label\na,b\n")
    return tmp_path


@pytest.mark.parametrize(("kind", "values", "message"), WRONG)
def test_a_name_that_cannot_be_used_is_refused(folder, kind, values, message):
    settings = kind(**values)
    before = sorted(folder.rglob("*"))
    with pytest.raises(errors.UserError, match=f"^{message}"):
        settings.check_names()
    assert sorted(folder.rglob("*")) == before, "nothing is left behind"


def test_right_names_are_accepted(folder):
    commands.PredictionSettings(classifier="good", input="rows.csv", output="missing/labels.csv").check_names()
    commands.FitSettings(classifier="new", train_file="rows.csv", model="owner/name", task="trec").check_names()
    assert not (folder / "missing").exists() and not (folder / "new").exists()


def test_predict_imports_nothing_that_it_does_not_need():
    """These take more seconds to import than a text takes to classify."""
    program = "import sys, knnprompt_jax.commands.predict_job; print(*sys.modules)"
    printed, _ = processes.run("-c", program)
    needless = {"pandas", "scipy.stats", "sklearn", "transformers", "jax.experimental.pallas", "matplotlib"}
    needless |= {"knnprompt_jax.methods.all_methods"}
    assert not needless & set(printed.split())


def test_shares_of_classes():
    assert [commands.PriorOptions(class_prior=text).prior for text in ("", "uniform")] == [None, "uniform"]
    text = 'no=0.2, "New York, NY=3e-1",a=b=.5'
    assert commands.PriorOptions(class_prior=text).prior == {"no": 0.2, "New York, NY": 0.3, "a=b": 0.5}


@pytest.mark.parametrize("text", ["a=0.5,a=0.9", "a=0.5,b", "a=0.5,b=c", "a=0.5,"])
def test_shares_that_are_no_shares_are_refused(text):
    with pytest.raises(errors.UserError, match="^class_prior=.*give each label once"):
        _ = commands.PriorOptions(class_prior=text).prior
