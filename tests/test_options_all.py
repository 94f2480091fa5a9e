"""Every value of every option of every binary is accepted, or refused in one line: from Python, from the command line, in a job."""

import contextlib
import decimal
import fractions
import functools
import io
import os
import pathlib
import re
import runpy
import sys

import absl.app
import hypothesis
import jax
import numpy as np
import pytest
from absl import flags
from hypothesis import strategies

from knnprompt_jax import errors, lm, options
from knnprompt_jax.classifier.estimator import KNNPrompting
from knnprompt_jax.evaluation import job as evaluation
from knnprompt_jax.prediction import job as prediction
from knnprompt_jax.report import look
from knnprompt_jax.runs import comparison, fitting, tuning
from knnprompt_jax.settings import commands, shared
from knnprompt_jax.tasks import catalogue

BINARIES = sorted((pathlib.Path(__file__).resolve().parents[1] / "experiments").glob("*.py"))
NUMBERS = [0, 1, -1, 3, 2**31 - 1, 2**31, -(2**31), 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, 1e-320]
NUMBERS += [float("nan"), float("inf"), 1j, True, None, decimal.Decimal(3), fractions.Fraction(1, 3), ..., b"x", object]
NUMBERS += [np.int64(7), np.float32("nan"), np.bool_(True), np.arange(3), np.zeros((2, 2)), range(3), np.str_("x")]
WORDS = ["all", "nan", "None", "(1,)", "1,2", "(", "{1: 2}", "{[]: 1}", "-1", "2147483648", "..", "a/../b", "*"]  # fmt: skip
WORDS += ["utf-16", "idna", "x.csv", "1e400", "f(x)", "'", "--", "", "[" * 300, "9" * 5000, "\0", "\udce9", "é" * 200]  # fmt: skip
TEXTS = strategies.sampled_from(WORDS) | strategies.text(max_size=20)
SIMPLE = strategies.sampled_from(NUMBERS) | TEXTS | strategies.integers() | strategies.floats()
VALUES = SIMPLE | strategies.lists(SIMPLE, max_size=3) | strategies.lists(SIMPLE, max_size=3).map(tuple)
NEEDED = ["--store=x", "--input=a.csv", "--output=b.csv"]
VALUES |= strategies.dictionaries(TEXTS, SIMPLE, max_size=2) | strategies.sets(strategies.integers(), max_size=2)


class Parsed(Exception):
    """The binary would begin its work."""


def begin(name, *arguments):
    """Parse arguments as a binary does.

    Returns:
        The exit status, None if the work would begin; what it printed; the class of its options.
    """
    printed, known, kinds = io.StringIO(), set(flags.FLAGS), []

    def parse(main, flags_parser):
        flags_parser(sys.argv)
        raise Parsed

    def listed(kind, prefix="", original=options.listed):
        kinds.append(kind)
        return original(kind, prefix)

    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stderr(printed),
        contextlib.redirect_stdout(printed),
    ):
        binary = next(path for path in BINARIES if path.stem == name)
        patch.setattr(absl.app, "run", parse)
        patch.setattr(options, "listed", listed)
        patch.setattr(sys, "argv", [str(binary), *arguments])
        try:
            runpy.run_path(str(binary), run_name="__main__")
        except Parsed:
            return None, printed.getvalue(), kinds[0]
        except SystemExit as stop:
            return stop.code or 0, printed.getvalue(), kinds[0] if kinds else None
        finally:
            for flag in set(flags.FLAGS) - known:
                delattr(flags.FLAGS, flag)
    raise AssertionError("the binary ended before it had parsed anything")


@functools.cache
def declared(name):
    """The class of a binary's options, and what its --help prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "COLUMNS", "60")
        status, printed, kind = begin(name, "--help")
    assert status == 0
    return kind, printed


def is_one_line(text):
    assert text.count("\n") == text.endswith("\n") and len(text) < 1000, text
    return True


@pytest.mark.parametrize("name", [path.stem for path in BINARIES])
def test_help_lists_every_option_once(name):
    """In the order of the declaration, with its default, help and choices."""
    kind, printed = declared(name)
    entries = re.findall(r"^  --([\w.]+)=(.*)\n((?: {6}.*\n?)+)", printed, re.MULTILINE)
    found = {
        option: (value, " ".join(text.split()))
        for option, value, text in entries
        if option not in ("config", "dry_run")
    }
    assert list(found) == [option for option, _, _ in options.listed(kind)]
    for option, default, declaration in options.listed(kind):
        value, text = found[option]
        if name != "paper":  # Its config replaces defaults.
            default = "" if default is None else default
            assert value == (",".join(map(str, default)) if isinstance(default, tuple) else str(default))
        assert text.startswith(" ".join(declaration["help"].split()))
        assert text.endswith(f"One of {', '.join(declaration['choices'])}.") or not declaration["choices"]


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(strategies.data())
def test_values_from_python(data):
    kind, _ = declared(data.draw(strategies.sampled_from([path.stem for path in BINARIES])))
    name = data.draw(strategies.sampled_from([name for name, _, _ in options.listed(kind)]))
    try:
        checked = options.from_config(kind, {name: data.draw(VALUES)})
    except errors.UserError as error:
        assert is_one_line(str(error))
    else:
        value = functools.reduce(getattr, name.split("."), checked)
        assert isinstance(value, int | float | str | tuple | None) and value == value  # Neither NaN nor another type.


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(strategies.data())
def test_values_from_the_command_line(data):
    binary = data.draw(strategies.sampled_from([path.stem for path in BINARIES]))
    kind, _ = declared(binary)
    names = [name for name, _, _ in options.listed(kind)]
    name, no = data.draw(strategies.sampled_from(names)), data.draw(strategies.sampled_from(["", "", "", "no"]))
    needed = [given for given in (*NEEDED, "--train_file=a.csv") if given[2:].split("=")[0] in names]
    status, printed, _ = begin(binary, *needed, f"--{no}{name}={data.draw(TEXTS)}")
    assert status in (None, 2) and is_one_line(printed) and printed.startswith("error: ") == (status == 2)


class Loaded(Exception):
    """Weights would be read now."""


TINY = {"model": "tiny", "output": "out", "store": "saved"}
JOBS = {
    "compare": (shared.ComparisonSettings, comparison.run, TINY | {"store": ""}),
    "fit": (commands.FitSettings, fitting.run, TINY | {"store": "new", "task": "demo"}),
    "append": (commands.FitSettings, fitting.run, TINY | {"append": "rows.csv"}),
    "tune": (commands.TuningSettings, tuning.run, TINY | {"store": ""}),
    "predict": (commands.PredictionSettings, prediction.run, {"store": "saved", "input": "rows.csv", "output": "out.csv"}),
    "evaluate": (commands.EvaluationSettings, evaluation.run, {"store": "saved", "input": "rows.csv", "output": "page"}),
    "look": (commands.LookSettings, look.run, {"store": "saved", "output": "page"}),
}  # fmt: skip
# These need a Hub or other processes.
LEFT_OUT = {"model", "revision", "hub", "methods", "distributed.auto", "distributed.address"}


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """A folder with a saved classifier and files of rows, deep enough for names that lead upwards."""
    folder = tmp_path_factory.mktemp("material") / "a" / "b" / "c"
    folder.mkdir(parents=True)
    texts, labels = ["a dull film", "a fine film", "so dull", "so fine", "fine"], [0, 1, 0, 1, 1]
    model = lm.LanguageModel.from_pretrained("tiny")
    KNNPrompting(model, catalogue.get("demo"), k=1, demo_shots=1).fit(texts, labels).save(folder / "saved")
    (folder / "rows.csv").write_text("sentence,label\n" + "".join(map("{},{}\n".format, texts, labels)))
    return folder


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(strategies.data())
def test_values_in_the_jobs(material, data):
    """A value that the declaration accepts ends in one line, or the job reaches the weights."""
    kind, run, given = JOBS[data.draw(strategies.sampled_from(list(JOBS)))]
    names = [name for name, _, _ in options.listed(kind) if name not in LEFT_OUT]
    name = data.draw(strategies.sampled_from(names))
    given = {key: value for key, value in given.items() if key in kind.__dataclass_fields__}
    value = data.draw(VALUES)
    value = value.lstrip("/~") if isinstance(value, str) else value
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(material)
        patch.setattr(lm.LanguageModel, "from_files", functools.partial(_raise, Loaded))
        patch.setattr(jax.distributed, "initialize", functools.partial(_raise, ValueError))
        try:
            run(options.from_config(kind, {**given, name: value}))
        except (errors.UserError, OSError) as error:
            assert is_one_line(str(error))
        except Loaded:
            pass
        else:
            raise AssertionError("the job ended without a model")


def _raise(error, *_, **__):
    raise error
