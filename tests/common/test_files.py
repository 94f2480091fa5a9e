"""Locks, drafts, checks before anything is written, and compiled programs in the cache folder."""

import functools
import os
import pathlib
import re

import pytest

from knnprompt_jax.common import errors, files
from tests import processes

HOLDER = """
import pathlib, sys
from knnprompt_jax.common import files
with files.lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path):
    """A path that another process holds."""
    path = tmp_path / "new" / "store"
    with processes.start("-c", HOLDER, path) as process:
        assert process.stdout.readline() == "held\n"
        yield path, process
        process.kill()


@pytest.mark.parametrize("path", ["/proc/store", "{}/file/store", "{}/file/folder/store"])
def test_a_lock_in_an_unwritable_folder_blames_no_other_process(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(errors.UserError) as caught, files.lock(pathlib.Path(path.format(tmp_path))):
        pass
    assert "another process" not in str(caught.value)


def test_a_held_path_is_refused_under_every_name(held):
    path, process = held
    link = path.parent.parent / "link"
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(errors.UserError) as caught, files.lock(name):
            pass
        assert str(caught.value) == f"{name}: another process is writing to it"
    process.stdin.close()
    process.wait()
    assert not list(path.parent.iterdir())
    with files.lock(link):
        pass


def test_a_new_file_is_complete_or_absent_and_a_link_remains(tmp_path):
    path = tmp_path / "file"
    (tmp_path / "there").mkdir()
    path.symlink_to(tmp_path / "there" / "file")
    for content in (b"one", b"two"):
        with files.new_file(path) as draft:
            draft.write_bytes(content)
        assert path.read_bytes() == content
    with pytest.raises(ZeroDivisionError), files.new_file(path) as draft:
        draft.write_bytes(b"three")
        raise ZeroDivisionError
    assert [left.name for left in (tmp_path / "there").iterdir()] == ["file"] and path.read_bytes() == b"two"
    assert path.is_symlink()
    with (
        pytest.raises(errors.UserError, match="file: another process is writing to it"),
        files.new_file(path),
        files.new_file(path),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("folder", {}, "folder: it exists and is not a file"),
        ("pipe", {}, "pipe: it exists and is not a file"),
        ("file/below/it", {"folder": True}, "file"),
        ("x" * 300, {}, "File name too long"),
    ],
)
def test_unwritable_paths_are_refused_before_the_work(tmp_path, name, options, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(errors.UserError, match=re.escape(message)):
        files.check_writable(tmp_path / name, **options)
    assert sorted(tmp_path.rglob("*")) == before


def test_only_an_absolute_path_is_a_cache_folder(tmp_path, monkeypatch, caplog):
    """Otherwise a folder with the name of an unknown home would be made in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "")
    for given in ("OFF", "relative", "~/x", "~nosuchuser/x", "/proc/nope", "relative"):
        monkeypatch.setenv("KNNPROMPT_CACHE", given)
        assert files.find_cache_folder() is None
    warned = [record.message.partition(": ")[2].partition(": ")[0] for record in caplog.records]
    assert warned == ["relative", "~/x", "~nosuchuser/x", "/proc/nope"], "a line each, and none for off"
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
    assert files.find_cache_folder() == tmp_path / ".cache" / "knnprompt_jax"


PROGRAM = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(message)s")
from knnprompt_jax.common import files
files.keep_programs()
import jax, jax.numpy as jnp
print("cache", jax.config.jax_compilation_cache_dir)
print("result", float(jax.jit(lambda x: (2 * x).sum())(jnp.arange(7.0))))
"""


def finish(process):
    """Return the result, and whether the program was taken from the cache."""
    out, error = processes.finish(process)
    assert "rror" not in error and "arning" not in error, error
    lines = out.splitlines()
    hits = sum("cache hit" in line.lower() and "jit__lambda" in line for line in lines)
    (result,) = (float(line.split()[1]) for line in lines if line.startswith("result "))
    return result, hits > 0


def test_programs_are_taken_from_the_cache(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("JAX_", "XDG_CACHE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    start = functools.partial(processes.start, "-c", PROGRAM)
    for process in [start(), start()]:  # At once.
        assert finish(process)[0] == 42.0
    assert finish(start()) == (42.0, True)
    (folder,) = (tmp_path / "compiled").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700, "programs of others are not run"
    for entry in folder.glob("jit__lambda*-cache"):  # Killed while it wrote.
        entry.write_bytes(entry.read_bytes()[:100])
        entry.with_name(entry.name.removesuffix("-cache") + "-atime").unlink()
        full_disk = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))"
        assert finish(processes.start("-c", full_disk + PROGRAM)) == (42.0, False)
    assert finish(start()) == (42.0, False)
