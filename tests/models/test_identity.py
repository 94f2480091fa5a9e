"""The fingerprint follows the content of a model's files, and nothing else."""

import hashlib
import os
import shutil
import time

import pytest

from knnprompt_jax.common import errors, files
from knnprompt_jax.models import hub, registry


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder; files count as settled at once."""
    monkeypatch.setattr(files, "_SETTLED_NS", -1)
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(cache, tmp_path):
    return shutil.copytree(hub.locate("tiny"), tmp_path / "model")


NAMES = ["model.safetensors", "config.json", "tokenizer_config.json", "spiece.model", "1_Pooling/config.json"]


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_changes_it(folder, name):
    """The file keeps its size and its time of modification."""
    file = folder / name
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text("{}")
    before, stat, data = registry.fingerprint(folder), file.stat(), bytearray(file.read_bytes())
    time.sleep(0.01)  # The time of change moves on by ticks of a few milliseconds.
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert registry.fingerprint(folder) != before and len(before) == 64


def test_what_decides_nothing_does_not_change_it(folder, tmp_path):
    before = registry.fingerprint(folder)
    (folder / "README.md").write_text("other")
    os.utime(folder / "model.safetensors", (1, 1))
    assert registry.fingerprint(folder) == before
    assert registry.fingerprint(shutil.copytree(folder, tmp_path / "elsewhere" / "copy")) == before


def test_hashes_are_remembered(folder, monkeypatch):
    before = registry.fingerprint(folder)
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("a file was read again"))
    assert registry.fingerprint(folder) == before


def test_models_without_weights_have_none(tmp_path):
    with pytest.raises(errors.UserError, match="no weights"):
        registry.fingerprint(tmp_path)
