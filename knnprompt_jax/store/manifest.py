"""The manifest of a saved classifier: what made its anchors, and a checksum of every file."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import pathlib
import platform
from collections.abc import Mapping
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.files import MANIFEST

FORMAT = 9
REBUILD = "fit it again, with knnprompt fit --overwrite or in Python"
_PACKAGES = ("knnprompt_jax", "jax", "flax", "numpy", "orbax-checkpoint", "transformers")


def _compared(words: str) -> Any:
    """Return a field that queries must share with the anchors; `words` name a difference in the error."""
    return dataclasses.field(metadata={"words": words})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Provenance:
    """Everything that made the anchors. Queries are comparable with anchors only if the same made both.

    `fingerprint` covers the model's weights, config and tokenizer; it and `demonstrations` are SHA-256 sums. The model's name and
    the number of demonstrations are for people and are not compared.
    """

    model: str
    fingerprint: str = _compared("another model")
    dtype: str = _compared("another dtype of the model")
    task: str = _compared("another task")
    template: str = _compared("another template")
    labels: tuple[str, ...] = _compared("other labels")
    label_words: tuple[str, ...] = _compared("other label words")
    label_ids: tuple[int, ...] = _compared("other tokens of the label words")
    demonstrations: str = _compared("other demonstrations")
    num_demonstrations: int
    truncation: str = _compared("another truncation")
    label_token: str = _compared("another label_token")
    deterministic: bool = _compared("another value of deterministic")
    context: int = _compared("another context of the model")

    def check(self, expected: "Provenance", place: pathlib.Path) -> None:
        """Raise UserError with the first difference that matters."""
        for field in dataclasses.fields(self):
            made, wanted = getattr(self, field.name), getattr(expected, field.name)
            if made != wanted and (words := field.metadata.get("words")):
                advice = ""
                if field.name == "fingerprint":  # The names tell people more, unless they are equal.
                    same_name = self.model == expected.model
                    advice = "restore the model's files" if same_name else f"give the model {self.model!r}"
                    advice = f"; {advice}, or fit again"
                    made, wanted = (f"{each.model} ({each.fingerprint[:8]})" for each in (self, expected))
                made, wanted = (text if len(text) <= 60 else f"{text[:57]}..." for text in map(repr, (made, wanted)))
                raise errors.UserError(f"{place}: made with {words}: {made}, not {wanted}{advice}")


@functools.cache
def versions() -> Mapping[str, str]:
    """Return the versions of Python and of the libraries that can change a result."""
    installed = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of manifest.json; `files` maps paths to bytes and SHA-256."""

    provenance: Provenance
    files: Mapping[str, tuple[int, str]]
    versions: Mapping[str, str] = dataclasses.field(default_factory=versions)
    format: int = FORMAT


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text; lone surrogates are allowed."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_hash(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(folder: pathlib.Path, manifest: Manifest) -> None:
    """Write the manifest into a folder, with a checksum of its own content."""
    content = dataclasses.asdict(manifest)
    text = json.dumps({**content, "checksum": _checksum(content)}, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read(folder: pathlib.Path) -> Manifest:
    """Return the manifest in a folder.

    Raises:
        UserError: the manifest is missing, damaged or altered, or another version of this library wrote it.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (NotADirectoryError, FileNotFoundError):
        if not folder.exists():
            raise errors.UserError(f"{folder}: no such folder of a saved classifier") from None
        raise errors.UserError(f"{folder}: not a saved classifier, which is a folder with a {MANIFEST}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise errors.UserError(f"{path}: damaged: {error}") from None
    if not isinstance(content, dict) or not isinstance(version := content.get("format"), int):
        raise errors.UserError(f"{path}: not the manifest of a classifier")
    if version > FORMAT:
        raise errors.UserError(
            f"{path}: format {version} is newer than this version reads ({FORMAT}): update knnprompt_jax"
        )
    if version < FORMAT:
        raise errors.UserError(f"{path}: from an earlier version (format {version}): {REBUILD}")
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content) or set(content) != {field.name for field in dataclasses.fields(Manifest)}:
        raise errors.UserError(f"{path}: changed since it was saved (checksum): {REBUILD}")
    try:
        values = {name: _tuples(value) for name, value in content.items()}
        if not all(isinstance(num_bytes, int) for num_bytes, _ in values["files"].values()):
            raise TypeError("files without sizes")
        return Manifest(**{**values, "provenance": Provenance(**values["provenance"])})
    except (TypeError, ValueError, AttributeError, LookupError) as error:  # Somebody made the checksum fit.
        raise errors.UserError(f"{path}: not the manifest of a classifier: {error}") from None


def checksums(folder: pathlib.Path) -> dict[str, tuple[int, str]]:
    """Return bytes and SHA-256 of every file in a folder, by its relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): (path.stat().st_size, file_hash(path)) for path in files}


def check_files(folder: pathlib.Path, manifest: Manifest) -> None:
    """Raise UserError unless the folder holds every file of the manifest, unaltered, and no other file."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if (not path.is_dir() or path.is_symlink()) and name != MANIFEST and name not in manifest.files:
            raise errors.UserError(f"{path}: unexpected file in a saved classifier: move it elsewhere")
    for name, (num_bytes, checksum) in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise errors.UserError(f"{path}: missing from the classifier: {REBUILD}")
        if (size := path.stat().st_size) != num_bytes:
            raise errors.UserError(f"{path}: {size} bytes, but {num_bytes} were saved: {REBUILD}")
        if file_hash(path) != checksum:
            raise errors.UserError(f"{path}: changed since it was saved (checksum): {REBUILD}")


def _checksum(content: Mapping[str, Any]) -> str:
    return text_hash(json.dumps(content, sort_keys=True))


def _tuples(value: Any) -> Any:
    """Return JSON values with tuples in place of lists."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {name: _tuples(item) for name, item in value.items()} if isinstance(value, dict) else value
