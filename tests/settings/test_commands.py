"""Files, folders, models and tasks that options name: wrong ones are refused before anything slow is imported."""

import sys

import pytest

from knnprompt_jax import errors, options
from knnprompt_jax.settings import commands, devices, grids
from tests import processes

CLASSIFIER = b"PK\x03\x04 and more"
WRONG = [
    (commands.PredictionSettings, {"classifier": "nope", "text": "a"}, "nope: No such file or directory"),
    (commands.PredictionSettings, {"classifier": "folder", "text": "a"}, "folder: it is a folder, and a file is needed"),
    (commands.PredictionSettings, {"classifier": "good", "input": "folder"}, "folder: it is a folder, and a file is needed"),
    (
        commands.PredictionSettings,
        {"classifier": "good", "input": "rows.csv", "output": "out.csv"},
        "out.csv: exists already; choose another file, or add --overwrite",
    ),
    (
        commands.PredictionSettings,
        {"classifier": "good", "input": "rows.csv", "output": "rows.csv/labels.csv"},
        "rows.csv/labels.csv: /",
    ),
    (commands.EvaluationSettings, {"classifier": "good", "input": "nope"}, "nope: No such file or directory"),
    (
        commands.EvaluationSettings,
        {"classifier": "good", "input": "rows.csv", "output": "rows.csv"},
        "rows.csv: it is a file, and a folder is needed",
    ),
    (commands.ExplanationSettings, {"classifier": "nope", "text": "a"}, "nope: No such file or directory"),
    (commands.LookSettings, {"classifier": "nope"}, "nope: No such file or directory"),
    (commands.FitSettings, {"classifier": "new", "train_file": "nope.csv"}, "nope.csv: No such file or directory"),
    (commands.FitSettings, {"classifier": "folder", "train_file": "rows.csv"}, "folder: it is a folder, and a file is needed"),
    (
        commands.FitSettings,
        {"classifier": "new", "train_file": "rows.csv", "corrections": "nope.csv"},
        "nope.csv: No such file or directory",
    ),
    (
        commands.FitSettings,
        {"classifier": "new", "train_file": "rows.csv", "model": "gemma"},
        "unknown model 'gemma': did you mean 'gemma-3-270m'?",
    ),
    (
        commands.FitSettings,
        {"classifier": "new", "train_file": "rows.csv", "model": "./nope"},
        "no such folder: ./nope",
    ),
    (
        commands.FitSettings,
        {"classifier": "new", "train_file": "rows.csv", "task": "nope.yaml"},
        "nope.yaml: cannot read the task declaration: No such file or directory",
    ),
    (grids.ComparisonSettings, {"task": "sst2", "data_dir": "rows.csv"}, "rows.csv: it is a file, and a folder is"),
    (grids.GridSettings, {"experiment": "few_shot", "models": ("tiny", "smolm2")}, "unknown model 'smolm2': did you mean"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "good").write_bytes(CLASSIFIER)
    (tmp_path / "rows.csv").write_text("text,label\na,b\n")
    (tmp_path / "out.csv").write_text("an earlier output")
    return tmp_path


@pytest.mark.parametrize(("kind", "values", "message"), WRONG)
def test_a_name_that_cannot_be_used_is_refused(folder, kind, values, message):
    settings = kind(**values)
    before = sorted(folder.rglob("*"))
    with pytest.raises(errors.UserError) as caught:
        settings.check_names()
    assert str(caught.value).startswith(message)
    assert sorted(folder.rglob("*")) == before, "nothing is left behind"


@pytest.mark.parametrize("p_value", [0.0, 1.0, -0.1, 1.5])
def test_a_p_value_is_between_0_and_1(p_value):
    with pytest.raises(errors.UserError, match="^reject_novel=.*0.0001 is required|0.9999 is allowed"):
        commands.PredictionSettings(classifier="good", text="a", reject_novel=p_value)


def test_labels_in_a_file_need_no_standard_output(folder):
    options = {"classifier": "saved", "input": str(folder / "rows.csv")}
    assert commands.PredictionSettings(**options).prints
    assert not commands.PredictionSettings(**options, output="labels.csv").prints


@pytest.mark.parametrize(("stream", "name"), [("stdin", "--input"), ("stdout", "--output")])
def test_a_closed_stream_is_named(folder, monkeypatch, stream, name):
    monkeypatch.setattr(sys, stream, None)
    source = {"input": "-", "format": "csv", "output": "new.csv"} if stream == "stdin" else {"input": "rows.csv"}
    with pytest.raises(errors.UserError, match=f"^{name}=-: standard {stream[3:]}put is closed$"):
        commands.PredictionSettings(classifier="good", **source).check_names()


BEFORE = """
import contextlib, sys
from knnprompt_jax import console
sys.argv = ["knnprompt", "evaluate", "--classifier=good", "--input=nope.csv"]
with contextlib.suppress(SystemExit):
    console.main()
print({"flax", "jax", "pandas", "scipy", "sklearn", "transformers"} & set(sys.modules))
"""


def test_a_command_checks_names_before_it_imports_anything_slow(folder):
    printed, told = processes.run("-c", BEFORE, cwd=folder)
    assert (printed, told) == ("set()\n", "error: nope.csv: No such file or directory\n")


def test_predict_imports_nothing_that_it_does_not_need():
    """These take more seconds to import than a text takes to classify."""
    program = "import sys, knnprompt_jax.commands.predict_job; print(*sys.modules)"
    printed, _ = processes.run("-c", program)
    needless = {"pandas", "scipy.stats", "sklearn", "transformers", "jax.experimental.pallas", "matplotlib"}
    assert not needless & set(printed.split())


def test_right_names_are_accepted(folder):
    commands.PredictionSettings(classifier="good", input="rows.csv", output="missing/labels.csv").check_names()
    commands.FitSettings(classifier="new", train_file="rows.csv", model="owner/name", task="trec").check_names()
    assert not (folder / "missing").exists() and not (folder / "new").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_error": 0}, "max_error=0: at least 0.001 is required"),
        ({"max_error": 1.0}, "max_error=1.0: at most 0.999 is allowed"),
    ],
)
def test_a_promise_is_a_share(options, message):
    with pytest.raises(errors.UserError, match=f"^{message}"):
        commands.PredictionSettings(classifier="good", text="a", **options)


@pytest.mark.parametrize(
    "kind",
    [
        *(commands.FitSettings, commands.PredictionSettings, commands.EvaluationSettings, commands.LookSettings),
        *(commands.ExplanationSettings, grids.ComparisonSettings, devices.BenchmarkSettings, grids.GridSettings),
    ],
)
def test_the_mesh_has_one_spelling(kind):
    names = {name for name, _, _ in options.declarations(kind) if "mesh" in name}
    assert "mesh.model" in names and names <= {"mesh.model", "mesh.data"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("uniform", "uniform"),
        ("no=0.2, yes=0.8", {"no": 0.2, "yes": 0.8}),
        ("New York, NY=0.3,LA=0.7", {"New York, NY": 0.3, "LA": 0.7}),
        ("a=0.5,a=0.9", "'a' is given twice"),
        ("a=0.5,b", "'b' is not label=share"),
        ("a=0.5,b=c", "'b=c' is not label=share"),
        ("a=b=.5,b=5e-1", {"a=b": 0.5, "b": 0.5}),
        ("a=", "'a=' is not label=share"),
        ("a=1.,b=1e+0", {"a": 1.0, "b": 1.0}),
        ("a=0.5,", "'a=0.5,' is not label=share"),
        ("a=0.5,,b=0.5", "',b=0.5' is not label=share"),
    ],
)
def test_shares_of_classes(text, expected):
    if isinstance(expected, str) and expected != text:
        with pytest.raises(errors.UserError, match=expected):
            commands.parse_prior(text)
    else:
        assert commands.parse_prior(text) == expected
