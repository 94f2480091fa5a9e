"""Any value of any option of any binary is accepted or told in one line: as Python gives it, as the command line does, and in the jobs."""

import contextlib
import decimal
import fractions
import functools
import io
import operator
import pathlib
import runpy
import sys

import absl.app
import hypothesis
import jax
import numpy as np
import pytest
from absl import flags
from hypothesis import strategies

from knnprompt_jax import app, errors, lm, options
from knnprompt_jax.classifier.estimator import KNNPrompting
from knnprompt_jax.evaluation import job as evaluation
from knnprompt_jax.prediction import job as prediction
from knnprompt_jax.report import look
from knnprompt_jax.runs import building, comparison, method_settings, tuning
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.tasks import catalogue

BINARIES = sorted(path for path in (pathlib.Path(__file__).resolve().parents[1] / "experiments").glob("*.py"))
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


def begin(binary, *arguments):
    """Parses these arguments as the binary does; gives its exit status (None: the work would begin) and what it said."""
    told, known = io.StringIO(), set(flags.FLAGS)
    app.Config.of_binary = app.Flags.of_binary = None

    def parse(main, flags_parser):
        flags_parser(sys.argv)
        raise Parsed

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(told):
        patch.setattr(absl.app, "run", parse)
        patch.setattr(sys, "argv", [str(binary), *arguments])
        try:
            runpy.run_path(str(binary), run_name="__main__")
        except Parsed:
            return None, told.getvalue()
        except SystemExit as stop:
            return stop.code, told.getvalue()
        finally:
            for name in set(flags.FLAGS) - known:
                delattr(flags.FLAGS, name)
    raise AssertionError("the binary ended before it had parsed anything")


@functools.cache
def declared(binary):
    """The class that declares a binary's options, the prefix of their flags, and their values before any is given."""
    begin(binary)
    if config := app.Config.of_binary:
        shipped = runpy.run_path(config.path.split(":")[0])["get_config"]()
        names = [name for name, _, _ in options.listed(config.kind)]
        return config.kind, "config.", {name: operator.attrgetter(name)(shipped) for name in names}
    kind = app.Flags.of_binary.kind
    return kind, "", {name: default for name, default, _ in options.listed(kind)}


def is_one_line(text):
    assert text.count("\n") == text.endswith("\n") and len(text) < 1000, text
    return True


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(strategies.data())
@pytest.mark.parametrize("binary", BINARIES, ids=lambda path: path.stem)
def test_values_from_python(binary, data):
    kind, *_ = declared(binary)
    name = data.draw(strategies.sampled_from([name for name, _, _ in options.listed(kind)]))
    config, value = options.config_of(kind), data.draw(VALUES)
    loose = config.to_dict()
    *groups, last = name.split(".")
    functools.reduce(lambda inner, group: inner[group], groups, loose)[last] = value
    try:
        checked = options.from_config(kind, loose)
    except errors.UserError as error:
        assert is_one_line(str(error))
    else:
        given = functools.reduce(getattr, name.split("."), checked)
        assert isinstance(given, int | float | str | tuple) and given == given  # Neither NaN nor of another kind.


@hypothesis.settings(max_examples=12, deadline=None)
@hypothesis.given(strategies.data())
@pytest.mark.parametrize("binary", BINARIES, ids=lambda path: path.stem)
def test_values_from_the_command_line(binary, data):
    kind, prefix, _ = declared(binary)
    names = [name for name, _, _ in options.listed(kind)]
    name, no = data.draw(strategies.sampled_from(names)), data.draw(strategies.sampled_from(["", "", "", "no"]))
    needed = [given for given in (*NEEDED, "--train_file=a.csv") if not prefix and given[2:].split("=")[0] in names]
    status, told = begin(binary, *needed, f"--{no}{prefix}{name}={data.draw(TEXTS)}")
    assert status in (None, 2) and is_one_line(told) and told.startswith("error: ") == (status == 2)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("fit", ["train.csv"], "unexpected argument 'train.csv': options are written --name=value, as in --train_file=train.csv"),
        ("predict", ["rows.csv"], "unexpected argument 'rows.csv': options are written --name=value, as in --input=rows.csv"),
        ("fit", ["--nokey"], "unknown option --nokey: --help lists them"),
        ("fit", ["--stor=x"], "unknown option --stor: did you mean --store? --help lists them"),
        ("predict", [*NEEDED, "--probabilities=maybe"], "--probabilities='maybe': it must be True or False"),
        ("compare", ["--config.seeds="], "seeds=(): it is needed: Seeds of the draws of train rows."),
        ("paper", ["--config.seeds=()"], "seeds=(): it is needed: Of the draws of train rows."),
        ("compare", ["--config.seeds=(-1,)"], "seeds=(-1,): at least 0 is needed"),
        ("tune", ["--config.seed=2147483648"], "seed=2147483648: at most 2147483647 is possible"),
        ("compare", [f"--config.options.knn.k={'9' * 4000}"], f"options.knn.k={'9' * 40}…{'9' * 20}: at most 2147483647"),
        ("compare", [f"--config.options.knn.k={'9' * 5000}"], f"options.knn.k='{'9' * 39}…{'9' * 19}': it must be a whole"),
    ],
)  # fmt: skip
def test_what_is_told(name, arguments, message):
    status, told = begin(BINARIES[0].with_name(f"{name}.py"), *arguments)
    assert status == 2 and told.startswith(f"error: {message}") and is_one_line(told)


class Loaded(Exception):
    """Weights would be read now."""


TINY = {"model": "tiny", "output": "out", "store": "saved"}
JOBS = {
    "compare": (method_settings.JobSettings, comparison.run, TINY | {"store": ""}),
    "build": (settings_lib.BuildSettings, building.run, TINY | {"store": "new"}),
    "append": (settings_lib.BuildSettings, building.run, TINY | {"append": "rows.csv"}),
    "tune": (tuning.TuningSettings, tuning.run, TINY | {"store": ""}),
    "predict": (prediction.PredictionSettings, prediction.run, {"store": "saved", "input": "rows.csv", "output": "out.csv"}),
    "evaluate": (evaluation.EvaluationSettings, evaluation.run, {"store": "saved", "input": "rows.csv", "output": "page"}),
    "look": (look.LookOptions, look.run, {"store": "saved", "output": "page"}),
}  # fmt: skip
# A Hub that is not here, other processes that are not.
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
    (folder / "rows.txt").write_text("\n\n".join(texts * 20))
    return folder


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(strategies.data())
@pytest.mark.parametrize("job", JOBS)
def test_values_in_the_jobs(job, material, data):
    """What the declaration accepts ends in a line, or comes as far as the weights."""
    kind, run, given = JOBS[job]
    names = [name for name, _, _ in options.listed(kind) if name not in LEFT_OUT]
    name = data.draw(strategies.sampled_from(names))
    loose = options.config_of(kind, **{key: value for key, value in given.items() if key in kind.__dataclass_fields__})
    value = data.draw(VALUES)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(material)
        patch.setattr(lm.LanguageModel, "from_files", functools.partial(_raise, Loaded))
        patch.setattr(jax.distributed, "initialize", functools.partial(_raise, ValueError))
        loose = loose.to_dict()
        *groups, last = name.split(".")
        value = value.lstrip("/~") if isinstance(value, str) else value
        functools.reduce(lambda inner, group: inner[group], groups, loose)[last] = value
        try:
            run(options.from_config(kind, loose))
        except (errors.UserError, OSError) as error:
            assert is_one_line(str(error))
        except Loaded:
            pass
        else:
            raise AssertionError("it has come to an end without a model")


def _raise(error, *_, **__):
    raise error
