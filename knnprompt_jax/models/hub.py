"""From a model's name to its files: local or shipped ones, or a download from the Hugging Face Hub in one weight format."""

import glob
import os
import pathlib
from typing import Any

import huggingface_hub
from huggingface_hub import errors as hub_errors

from knnprompt_jax import errors, hub_client
from knnprompt_jax.models import hub_files, shipped, tensor_files

_TIMEOUT_SECONDS = 10.0


def resolve(
    name_or_path: str, revision: str | None = None, config_only: bool = False, weights: bool = True
) -> pathlib.Path:
    """Where a model lies: its folder, or its `.gguf` file, which holds all of it.

    A folder or a `.gguf` file comes first, and of a folder whose only weights are one `.gguf` file that file; then a
    shipped model by its name, then the Hub's snapshot of "owner/name", or of "owner/name:file.gguf" that file alone.

    Downloads config, tokenizer and the weights in one format, compares them with the Hub's checksums, and goes on where an earlier
    download broke off. Where the Hub gives nothing, the cache serves.

    Args:
        revision: branch, tag or commit on the Hub.
        config_only: download config.json alone; a `.gguf` file comes whole.
        weights: download the weights too.

    Raises:
        UserError: no such folder, file, model or revision, several `.gguf` files to choose from, no right to read it, a file
            that is missing or not what the Hub lists, or neither Hub nor cache has it.
    """
    local = _local(name_or_path)
    if local is not None:
        return local
    name, file = _parts(name_or_path)
    folder = _snapshot(name, revision, hub_files.Selection(file, config_only, weights))
    return folder / file if file else folder


def _local(name: str) -> pathlib.Path | None:
    """The model of a path or a shipped name; none if the name may be one on the Hub."""
    if not name:
        raise errors.UserError(f"model='': choose {', '.join(shipped.SHIPPED)}, a folder, a file or a Hub name")
    try:
        path = pathlib.Path(name).expanduser()
        if path.is_dir():
            return _only_gguf(path) or path
        if path.suffix == ".gguf" and path.is_file():
            return path
    except errors.UserError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # A name too long, a home that is none, a zero byte.
        reason = f"model {name[:80]!r} is no path that can be read: {error}"
        raise errors.UserError(reason.splitlines()[0][:300]) from None
    if name in shipped.SHIPPED:
        return shipped.locate(name)
    if _looks_like_path(_parts(name)[0]) or (path.suffix == ".gguf" and ":" not in name):
        what = "folder or .gguf file" if path.exists() else "folder" if path.suffix != ".gguf" else "file"
        raise errors.UserError(f"no such {what}: {name}")
    return None


def _only_gguf(folder: pathlib.Path) -> pathlib.Path | None:
    """The one `.gguf` file of a folder that has no other weights."""
    names = sorted(path.name for path in folder.iterdir())
    ggufs = [name for name in names if name.endswith(".gguf")]
    if not ggufs or tensor_files.pick(names):
        return None
    if len(ggufs) > 1:
        raise errors.UserError(f"{folder}: {len(ggufs)} .gguf files, name one: {', '.join(ggufs)}")
    return folder / ggufs[0]


def _parts(name: str) -> tuple[str, str]:
    """The name on the Hub, and the file that it names after a colon or none."""
    head, colon, file = name.rpartition(":")
    return (head, file) if colon and file.endswith(".gguf") else (name, "")


def _snapshot(name: str, revision: str | None, selection: hub_files.Selection) -> pathlib.Path:
    """The folder with the selected files of a model on the Hub."""
    what = f"model {name!r}" + (f", revision {revision!r}," if revision else "")
    try:
        return hub_client.patiently(lambda: _download(name, revision, selection))
    except hub_errors.HFValidationError:
        raise errors.UserError(
            f"{name!r} is neither a folder nor a possible Hub name (owner/name, or owner/name:file.gguf)"
        ) from None
    except hub_files.Unusable as error:
        raise errors.UserError(f"{what} cannot be used from the Hub: {error}") from None
    except (OSError, hub_errors.HTTPError) as error:
        if cached := _from_cache(name, revision, selection):
            return cached
        reason = hub_client.reason(error)
        known = "" if "/" in name else f" is not shipped ({', '.join(shipped.SHIPPED)}),"
        raise errors.UserError(f"{what}{known} is no local folder and not in the cache, and {reason}") from None


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith((".", "~", os.sep)) or name.count("/") > 1 or name.endswith("/") or pathlib.Path(name).exists()
    )


def _download(name: str, revision: str | None, selection: hub_files.Selection) -> pathlib.Path:
    info = huggingface_hub.HfApi().model_info(name, revision=revision, timeout=_TIMEOUT_SECONDS)
    files = selection.of([sibling.rfilename for sibling in info.siblings or []])
    cached = [huggingface_hub.try_to_load_from_cache(name, file, revision=info.sha) for file in files]
    folder = _files(name, revision, files)
    if not all(isinstance(path, str) for path in cached):
        hub_files.check(name, folder)
    return folder


def _files(name: str, revision: str | None, files: list[str], **options: Any) -> pathlib.Path:
    patterns = [glob.escape(file) for file in files]
    return pathlib.Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=patterns, **options))


def _from_cache(name: str, revision: str | None, selection: hub_files.Selection) -> pathlib.Path | None:
    """The snapshot in the cache, unless it lacks a file that a run reads."""
    try:
        listed = huggingface_hub.get_cached_repo_tree(name, revision=revision)
        files = selection.of([file.path for file in listed])
    except (hub_errors.CachedRepoTreeNotFoundError, hub_files.Unusable):  # Other programs may have filled the cache.
        files = [selection.file or hub_files.CONFIG]
    try:
        folder = _files(name, revision, files, local_files_only=True)
        if not selection.file and not selection.config_only and selection.weights:
            tensor_files.find(folder)
        return folder if all((folder / file).is_file() for file in files) else None
    except (OSError, errors.UserError):
        return None
