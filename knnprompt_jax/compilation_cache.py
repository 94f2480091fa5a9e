"""Keep compiled programs in the user's cache folder, so that no command compiles a large program again.

JAX's own cache does the work: the name of an entry is a hash of the program, the compiler's options and version, and the devices.
Each version of JAX and each kind of processor has its own folder, since programs for CPUs use the processor's instructions.
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

_MAX_BYTES = 2**30  # Beyond this the least recently used entries are removed.
_MIN_SECONDS = 0.05  # Programs that compile faster are not kept: JAX looks at every entry whenever it writes one.


def use() -> None:
    """Turn the cache on for this process and its children, unless KNNPROMPT_CACHE=off or JAX_COMPILATION_CACHE_DIR is set.

    KNNPROMPT_CACHE=folder moves it. If the folder cannot be made, nothing is kept.
    """
    cache = files.user_cache()
    if cache is None or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    folder = cache.absolute() / "compiled" / _machine()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # Programs are run: nobody else may write them.
    except OSError:
        return
    _remove_torn_entries(folder)
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_compilation_cache_max_size": _MAX_BYTES,  # Makes JAX read and write entries under a lock.
        "jax_persistent_cache_min_compile_time_secs": _MIN_SECONDS,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        os.environ.setdefault(name.upper(), str(value))
    if "jax" in sys.modules:  # It has read the environment already.
        import jax

        for name, value in settings.items():
            jax.config.update(name, value)


def _remove_torn_entries(folder: pathlib.Path) -> None:
    """Remove what a killed process left half-written: entries without the time of their last use."""
    jax_lock = filelock.FileLock(folder / ".lockfile", timeout=0)
    with contextlib.suppress(filelock.Timeout, OSError), jax_lock:
        for entry in folder.glob("*-cache"):
            if not entry.with_name(f"{entry.name.removesuffix('-cache')}-atime").exists():
                entry.unlink()


def _machine() -> str:
    """Return the version of JAX and a hash of the kind of processor."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    features = sorted({line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))})
    kind = "\n".join([platform.machine(), platform.processor(), *features])
    return f"jax-{metadata.version('jax')}-{hashlib.sha256(kind.encode()).hexdigest()[:12]}"
