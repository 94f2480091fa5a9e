"""The reference of the Python API is built without a warning and describes every public class and option."""

import dataclasses
import html
import importlib.util
import pathlib
import re

import pytest

import knnprompt_jax as kp
from knnprompt_jax.classifier import arguments

pytest.importorskip("pdoc")
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "build_reference.py"


def test_every_public_name_and_option_is_described(tmp_path):
    spec = importlib.util.spec_from_file_location("build_reference", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.build(tmp_path)
    text = html.unescape(re.sub(r"<[^>]+>", "", (tmp_path / "knnprompt_jax.html").read_text(encoding="utf-8")))
    words = " ".join(text.split())
    for name in kp.__all__:
        assert re.search(rf"(class|def) {name}\b", words), name
    for kind in (arguments.AutoOptions, arguments.PublishedOptions):
        for field in dataclasses.fields(kind):
            description = field.metadata.get("help") or field.metadata["argument"]
            assert f"{field.name}: {description}".replace("`", "") in words.replace("`", ""), field.name
    page = (tmp_path / "knnprompt_jax" / "classifier" / "estimator.html").read_text(encoding="utf-8")
    assert "Raises:" in page and "[Q, C]" in page and "set_fit_request" not in page
    assert all((tmp_path / f"{name.replace('.', '/')}.html").is_file() for name in script.MODULES)
