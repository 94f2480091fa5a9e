"""What a saved classifier says of its anchors: what made them, what is kept of them, and a checksum of every file."""

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

import jax

from knnprompt_jax import errors

FORMAT = 5
FILE = "manifest.json"
REBUILD = "build it again, by python experiments/build_datastore.py --config.store=FOLDER or KNNPrompting.fit and save"
_PACKAGES = ("knnprompt_jax", "jax", "flax", "numpy", "orbax-checkpoint", "transformers")


def _compared(words: str) -> Any:
    """A field that must be the same; `words` say what made the anchors where it is not."""
    return dataclasses.field(metadata={"words": words})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Provenance:
    """What made the anchors. Queries may be compared with them only if the same made these.

    `fingerprint`, `tokenizer` and `demonstrations` are SHA-256 sums; the model's name and the number of demonstrations are
    for people and are not compared.
    """

    model: str
    fingerprint: str = _compared("another model")
    tokenizer: str = _compared("another tokenizer")
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

    def check(self, expected: "Provenance", place: pathlib.Path) -> None:
        """Raises UserError, with the first difference that matters, unless the same made both."""
        for field in dataclasses.fields(self):
            made, wanted = getattr(self, field.name), getattr(expected, field.name)
            if made != wanted and (words := field.metadata.get("words")):
                if field.name == "fingerprint":  # Names say more than sums, unless they are the same.
                    made, wanted = (f"{it.model} ({it.fingerprint[:8]})" for it in (self, expected))
                raise errors.UserError(f"{place}: made with {words}: {_short(made)} there, {_short(wanted)} here")


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of manifest.json; `arrays` is a tree of abstract arrays, `files` has bytes and SHA-256 by path."""

    provenance: Provenance
    kind: str
    options: Mapping[str, Any]
    class_counts: Mapping[str, int]
    arrays: Mapping[str, Any]
    files: Mapping[str, tuple[int, str]]
    versions: Mapping[str, str] = dataclasses.field(default_factory=lambda: versions())
    format: int = FORMAT


def text_hash(text: str) -> str:
    """SHA-256 of a text, whatever characters it has."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of all that a `transformers` tokenizer does: its serialised form, or its vocabulary where it has none."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    text = backend.to_str() if backend is not None else json.dumps(sorted(tokenizer.get_vocab().items()))
    return text_hash(text)


def versions() -> dict[str, str]:
    """Of the libraries that have a say in the result."""
    return dict(_versions())


@functools.cache
def _versions() -> tuple[tuple[str, str], ...]:
    installed = [("python", platform.python_version())]
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed.append((name, importlib.metadata.version(name)))
    return tuple(installed)


def write(folder: pathlib.Path, manifest: Manifest) -> None:
    shapes = jax.tree.map(lambda array: [str(array.dtype), *array.shape], dict(manifest.arrays))
    content = {**dataclasses.asdict(dataclasses.replace(manifest, arrays={})), "arrays": shapes}
    text = json.dumps({**content, "checksum": _checksum(content)}, indent=1, ensure_ascii=False)
    (folder / FILE).write_text(text, encoding="utf-8")


def read(folder: pathlib.Path) -> Manifest:
    """The manifest in a folder, of this format and unaltered.

    Raises:
        UserError: there is none, it is damaged, or a newer version of this library wrote it.
    """
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except NotADirectoryError:
        raise errors.UserError(f"{folder}: it is a file, and a saved classifier is a folder") from None
    except FileNotFoundError:
        raise errors.UserError(f"{folder}: not a saved classifier: it has no {FILE}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise errors.UserError(f"{path}: damaged: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise errors.UserError(f"{path}: not the manifest of a classifier")
    if content["format"] > FORMAT:
        raise errors.UserError(
            f"{path}: format {content['format']} is newer than this version reads ({FORMAT}): update knnprompt_jax"
        )
    if content["format"] < FORMAT:
        raise errors.UserError(f"{path}: format {content['format']}, of an earlier version: {REBUILD}")
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content) or set(content) != {field.name for field in dataclasses.fields(Manifest)}:
        raise errors.UserError(f"{path}: altered since it was written (its checksum does not fit)")
    values = {name: _tuples(value) for name, value in content.items()}
    arrays = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array[1:], array[0]),
        values["arrays"],
        is_leaf=lambda leaf: isinstance(leaf, tuple),
    )
    return Manifest(**{**values, "provenance": Provenance(**values["provenance"]), "arrays": arrays})


def checksums(folder: pathlib.Path) -> dict[str, tuple[int, str]]:
    """Bytes and SHA-256 of every file in a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): (path.stat().st_size, file_hash(path)) for path in files}


def check_files(folder: pathlib.Path, manifest: Manifest) -> None:
    """Raises UserError unless every file of the manifest is there, unaltered, and no other."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if (not path.is_dir() or path.is_symlink()) and name != FILE and name not in manifest.files:
            raise errors.UserError(f"{path}: was not written with it: the manifest does not list it")
    for name, (num_bytes, checksum) in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise errors.UserError(f"{path}: missing from the classifier")
        if path.stat().st_size != num_bytes:
            raise errors.UserError(
                f"{path}: {path.stat().st_size} bytes, but {num_bytes} were written: truncated or altered"
            )
        if file_hash(path) != checksum:
            raise errors.UserError(f"{path}: altered since it was written (its checksum does not fit)")


def file_hash(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum(content: Mapping[str, Any]) -> str:
    return text_hash(json.dumps(content, sort_keys=True))


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {name: _tuples(item) for name, item in value.items()} if isinstance(value, dict) else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
