"""The folder of compiled programs, and what happens after a kill and with several processes at once."""

import functools
import os
import pathlib
import types

import pytest

from knnprompt_jax.common import compilation_cache
from tests import processes

CODE = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(message)s")
from knnprompt_jax.common import compilation_cache
compilation_cache.use()
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
    start = functools.partial(processes.start, "-c", CODE)
    for process in [start(), start()]:  # At once.
        assert finish(process)[0] == 42.0
    assert finish(start()) == (42.0, True)
    (folder,) = (tmp_path / "compiled").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700, "programs of others are not run"
    for entry in folder.glob("jit__lambda*-cache"):  # Killed while it wrote.
        entry.write_bytes(entry.read_bytes()[:100])
        entry.with_name(entry.name.removesuffix("-cache") + "-atime").unlink()
        full_disk = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))"
        assert finish(processes.start("-c", full_disk + CODE)) == (42.0, False)
    assert finish(start()) == (42.0, False)


@pytest.mark.parametrize("given", ["HOME", "off", "file", "JAX_COMPILATION_CACHE_DIR"])
def test_the_folder(monkeypatch, tmp_path, given):
    """The cache is in the user's cache folder, unless it is off, elsewhere, or its folder cannot be made."""
    for name in list(os.environ):
        if name.startswith(("JAX_COMPILATION", "JAX_PERSISTENT", "XDG_CACHE", "KNNPROMPT")):
            monkeypatch.delenv(name)
    (tmp_path / "file").touch()
    settings = {"HOME": str(tmp_path)}
    settings |= {"off": {"KNNPROMPT_CACHE": "off"}, "file": {"KNNPROMPT_CACHE": f"{tmp_path}/file"}}.get(given, {})
    settings |= {given: "elsewhere"} if given.startswith("JAX") else {}
    monkeypatch.setattr(os, "environ", {**os.environ, **settings})
    monkeypatch.setattr(compilation_cache, "sys", types.SimpleNamespace(modules={}))
    compilation_cache.use()
    if given == "HOME":
        folder = pathlib.Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
        assert folder.is_dir() and folder.parent == tmp_path / ".cache" / "knnprompt_jax" / "compiled"
    else:
        assert os.environ.get("JAX_COMPILATION_CACHE_DIR") == settings.get("JAX_COMPILATION_CACHE_DIR")
