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


@pytest.mark.parametrize("preset", [None, "elsewhere"])
def test_the_folder_is_in_the_users_cache_unless_it_is_set(monkeypatch, tmp_path, preset):
    environment = {"HOME": str(tmp_path)} | ({"JAX_COMPILATION_CACHE_DIR": preset} if preset else {})
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(compilation_cache, "sys", types.SimpleNamespace(modules={}))
    compilation_cache.use()
    folder = os.environ["JAX_COMPILATION_CACHE_DIR"]
    assert folder == preset or pathlib.Path(folder).parent == tmp_path / ".cache" / "knnprompt_jax" / "compiled"
