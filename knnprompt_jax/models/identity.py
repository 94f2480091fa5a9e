"""The fingerprint of a model: SHA-256 over the content of every file that decides its results."""

import contextlib
import hashlib
import json
import os
import pathlib
import time
from concurrent import futures

from knnprompt_jax import errors, files
from knnprompt_jax.models import tensor_files

# Files of a model folder besides the weights. Others (README.md, generation_config.json) change no result.
_SMALL_FILES = (
    "config.json",
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "*.model", "*.tiktoken"),
    *("modules.json", "sentence_bert_config.json", "*_Pooling/config.json"),  # Sentence encoders.
)
_MAX_REMEMBERED = 1000
_SETTLED_NS = 2_000_000_000  # A file that changed more recently may change again without a new time of modification.


def fingerprint(path: pathlib.Path) -> str:
    """Return the SHA-256 (hex) of a GGUF file, or of a model folder's weights, config.json and tokenizer files.

    The path does not matter. The hash of each file is remembered in the user's cache folder until its size or times change.

    Raises:
        UserError: a file is missing or cannot be read.
    """
    with files.refusals(path):
        if not path.is_dir():
            return _hashes([path])[0]
        found = {*tensor_files.find(path), *(file for name in _SMALL_FILES for file in path.glob(name))}
        sources = sorted(found)
        names = [file.relative_to(path).as_posix() for file in sources]
        return hashlib.sha256(json.dumps([names, _hashes(sources)]).encode()).hexdigest()


def _hashes(sources: list[pathlib.Path]) -> list[str]:
    """Return the SHA-256 of each file, from the memory if its size and times are unchanged."""
    cache = files.user_cache()
    memory = cache / "file_hashes.json" if cache else None
    known = _read(memory) if memory else {}
    names, stats = [os.path.realpath(file) for file in sources], [file.stat() for file in sources]
    states = [[stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns] for stat in stats]
    changed = [name for name, state in zip(names, states, strict=True) if known.get(name, [])[:3] != state]
    with futures.ThreadPoolExecutor(8) as pool:  # Hashing releases Python's lock.
        new = dict(zip(changed, pool.map(_hash, changed), strict=True))
    settled = time.time_ns() - _SETTLED_NS
    kept = {
        name: [*state, new[name]]
        for name, state in zip(names, states, strict=True)
        if name in new and max(state[1:]) < settled
    }
    if memory and kept:
        latest = {name: entry for name, entry in _read(memory).items() if name not in kept} | kept
        recent = dict(list(latest.items())[-_MAX_REMEMBERED:])
        with contextlib.suppress(errors.UserError), files.new_file(memory) as draft:  # The memory only saves time.
            draft.write_text(json.dumps(recent), encoding="utf-8")
    return [new[name] if name in new else known[name][3] for name in names]


def _hash(name: str) -> str:
    with open(name, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read(memory: pathlib.Path) -> dict[str, list]:
    """Return the remembered entries: absolute path → size, times of modification and change, SHA-256."""
    try:
        entries = json.loads(memory.read_text(encoding="utf-8"))
        return {name: entry for name, entry in entries.items() if isinstance(entry, list) and len(entry) == 4}
    except (OSError, ValueError, AttributeError):
        return {}
