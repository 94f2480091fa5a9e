"""Every value of every option of every binary is accepted, or refused in one line."""

import functools
import os
import pathlib
import re
import runpy
import sys

import hypothesis
import pytest
from hypothesis import strategies

from knnprompt_jax.common import options
from tests import shell

BINARIES = sorted((pathlib.Path(__file__).resolve().parents[2] / "experiments").glob("*.py"))
WORDS = ["all", "nan", "None", "(1,)", "1,2", "(", "{1: 2}", "{[]: 1}", "-1", "2147483648", "..", "a/../b", "*"]  # fmt: skip
WORDS += ["utf-16", "idna", "x.csv", "1e400", "f(x)", "'", "--", "", "[" * 300, "9" * 5000, "\0", "\udce9", "é" * 200]  # fmt: skip
TEXTS = strategies.sampled_from(WORDS) | strategies.text(max_size=20)
NEEDED = ["--classifier=x", "--input=a.csv", "--output=b.csv"]


def begin(name, *arguments):
    """Parse arguments as a binary does.

    Returns:
        The exit status, None if the work would begin; what it printed; the class of its options.
    """
    binary, status, kind = next(path for path in BINARIES if path.stem == name), None, None
    with shell.started([str(binary), *arguments], lambda main, flags_parser: flags_parser(sys.argv)) as printed:
        try:
            made = runpy.run_path(str(binary))["FLAGS"]
            kind = made.kind
            made.run(lambda: None)
        except SystemExit as stop:
            status = stop.code or 0
    return status, printed.getvalue(), kind


@functools.cache
def declared(name):
    """The class of a binary's options, and what its --helpfull prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "COLUMNS", "60")
        status, printed, kind = begin(name, "--helpfull")
    assert status == 0
    return kind, printed


def is_one_line(text):
    assert text.count("\n") == text.endswith("\n") and len(text) < 1000, text
    return True


@pytest.mark.parametrize("name", [path.stem for path in BINARIES])
def test_helpfull_lists_every_option_once(name):
    """Each entry has its default, its help and its choices."""
    kind, printed = declared(name)
    entries = re.findall(r"^  --([\w.]+)=(.*)\n((?: {6}.*\n?)+)", printed, re.MULTILINE)
    found = {option: (value, " ".join(text.split())) for option, value, text in entries}
    assert len(found) == len(entries) and set(found) == {option for option, _, _ in options.declarations(kind)}
    for option, default, declaration in options.declarations(kind):
        value, text = found[option]
        if name != "paper":  # Its config replaces defaults.
            default = "" if default is None else default
            assert value == (",".join(map(str, default)) if isinstance(default, tuple) else str(default))
        assert text.startswith(" ".join(declaration["help"].split()))
        assert text.endswith(f"One of {', '.join(declaration['choices'])}.") or not declaration["choices"]


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(strategies.data())
def test_values_from_the_command_line(data):
    binary = data.draw(strategies.sampled_from([path.stem for path in BINARIES]))
    kind, _ = declared(binary)
    names = [name for name, _, _ in options.declarations(kind)]
    name, no = data.draw(strategies.sampled_from(names)), data.draw(strategies.sampled_from(["", "", "", "no"]))
    needed = [given for given in (*NEEDED, "--train_file=a.csv") if given[2:].split("=")[0] in names]
    status, printed, _ = begin(binary, *needed, f"--{no}{name}={data.draw(TEXTS)}")
    assert status in (None, 2) and is_one_line(printed) and printed.startswith("error: ") == (status == 2)
