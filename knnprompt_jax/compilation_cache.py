"""Compiled programs are kept in the user's cache folder, so that a command compiles nothing that it, or another, compiled before.

JAX's own cache does it: the name of an entry is a hash of the program, its compiler's options and version, and the devices. Beside
that a folder is for one version of JAX and one kind of processor, whose instructions programs for CPUs are made of.
"""

import contextlib
import hashlib
import os
import pathlib
import platform
import sys
from importlib import metadata

import filelock

from knnprompt_jax import files

_MOST_BYTES = 2**30  # What was used longest ago goes first.


def use() -> None:
    """Turns the cache on, for this process and those that it starts, unless KNNPROMPT_CACHE=off or JAX was told of another.

    KNNPROMPT_CACHE=folder moves it. Where the folder cannot be made, nothing is kept.
    """
    cache = files.user_cache()
    if cache is None or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    place = cache / "compiled" / _machine()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)  # Programs are run: nobody else is to write them.
    except OSError:
        return
    if not os.access(place, os.W_OK):
        return
    _drop_torn(place)
    settings = {
        "jax_compilation_cache_dir": str(place),
        "jax_compilation_cache_max_size": _MOST_BYTES,  # With which entries are read and written under a lock.
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        os.environ.setdefault(name.upper(), str(value))
    if "jax" in sys.modules:  # It has read the environment already.
        import jax

        for name, value in settings.items():
            jax.config.update(name, value)


def _drop_torn(place: pathlib.Path) -> None:
    """Removes what a process that was killed in the middle of writing has left: an entry without the time of its last use."""
    with (
        contextlib.suppress(filelock.Timeout, OSError),
        filelock.FileLock(place / ".lockfile", timeout=0),
    ):  # JAX's lock.
        for entry in place.glob("*-cache"):
            if not entry.with_name(f"{entry.name.removesuffix('-cache')}-atime").exists():
                entry.unlink()


def _machine() -> str:
    """The version of JAX, and a hash of what kind of processor this is."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    described = sorted({line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))})
    kind = "\n".join([platform.machine(), platform.processor(), *described])
    return f"jax-{metadata.version('jax')}-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"
