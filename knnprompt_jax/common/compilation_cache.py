"""Keep compiled programs in the user's cache folder, so that no command compiles a large program again.

JAX's own cache does the work: the name of an entry is a hash of the program, the compiler's options and version, and
the devices. Each version of JAX has its own folder.
"""

import contextlib
import os
import pathlib
import sys
import warnings
from importlib import metadata

import filelock

from knnprompt_jax.common import files

_MAX_BYTES = 2**30  # Beyond this the least recently used entries are removed.
_MIN_SECONDS = 0.05  # Programs that compile faster are not cached: JAX visits every entry whenever it writes one.


def use() -> None:
    """Turn the cache on for this process and its children.

    KNNPROMPT_CACHE=folder moves the cache, KNNPROMPT_CACHE=off keeps it off. If JAX_COMPILATION_CACHE_DIR is set,
    nothing changes. If the folder cannot be made, the cache stays off.
    """
    cache = files.find_cache_folder()
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or cache is None:
        return
    programs = cache.absolute() / "compiled" / f"jax-{metadata.version('jax')}"
    try:
        programs.mkdir(mode=0o700, parents=True, exist_ok=True)  # Only the user may write programs that the user runs.
    except OSError:
        return
    _remove_torn_entries(programs)
    settings = {
        "jax_compilation_cache_dir": str(programs),
        "jax_compilation_cache_max_size": _MAX_BYTES,  # Makes JAX read and write entries under a lock.
        "jax_persistent_cache_min_compile_time_secs": _MIN_SECONDS,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    # Where the disk is full or read-only, each program would give a warning of many lines.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    for name, value in settings.items():
        os.environ.setdefault(name.upper(), str(value))
    if "jax" in sys.modules:  # JAX has read the environment already.
        import jax

        for name, value in settings.items():
            jax.config.update(name, value)


def _remove_torn_entries(folder: pathlib.Path) -> None:
    """Remove entries that a killed process left incomplete: those without the time of their last use."""
    jax_lock = filelock.FileLock(folder / ".lockfile", timeout=0)
    with contextlib.suppress(filelock.Timeout, OSError), jax_lock:
        for entry in folder.glob("*-cache"):
            if not entry.with_name(f"{entry.name.removesuffix('-cache')}-atime").exists():
                entry.unlink()
