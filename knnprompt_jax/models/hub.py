"""Find the files of a model: a local folder or file, a shipped model, or a download from the Hugging Face Hub."""

import functools
import glob
import os
import pathlib
from collections.abc import Callable

import huggingface_hub
from huggingface_hub import errors as hub_errors

from knnprompt_jax import errors, hub_client, shipped
from knnprompt_jax.models.weights import tensor_files

_CONFIG = "config.json"
_SMALL = (".json", ".txt", ".jinja")  # Endings of configuration, tokenizer and chat template.
_TOKENIZERS = (".model", ".tiktoken")  # Endings of tokenizers, fetched if there is no tokenizer.json.
_TIMEOUT_SECONDS = 10.0


def resolve(name_or_path: str, config_only: bool = False, weights: bool = True) -> pathlib.Path:
    """Return the folder of a model, or the `.gguf` file that holds all of it.

    The first that exists is used:

    - a folder, or the only `.gguf` file of a folder without other weights;
    - a `.gguf` file;
    - a shipped model;
    - the Hub's snapshot of "owner/name" or of "owner/name@revision", which is a branch, tag or commit, or the one file
      of "owner/name:file.gguf".

    A download fetches the config, the tokenizer and the weights in one format, resumes partial files and verifies
    checksums. If the Hub does not answer, the cache is used.

    Args:
        name_or_path: a shipped model, a folder, a `.gguf` file or a Hub name.
        config_only: download only config.json; a `.gguf` file is always whole.
        weights: download the weights too.

    Raises:
        UserError: no such folder, file, model or revision; several `.gguf` files to choose from; no permission; a
            missing or damaged file; or neither the Hub nor the cache has the model.
    """
    local = _find_local(name_or_path)
    if local is not None:
        return local
    name, revision, file = _split(name_or_path)
    select = functools.partial(_select, file=file, config_only=config_only, weights=weights)
    what = f"model {name!r}" + (f", revision {revision!r}," if revision else "")
    try:
        return _download(name, revision, select) / file
    except hub_errors.HFValidationError:
        raise errors.UserError(
            f"{name!r} is neither a folder nor a possible Hub name (owner/name, owner/name@revision or owner/name:file.gguf)"
        ) from None
    except _Unusable as error:
        raise errors.UserError(f"{what} cannot be used from the Hub: {error}") from None
    except (OSError, hub_errors.HTTPError) as error:
        if cached := _find_cached(name, revision, file or _CONFIG, weights and not file and not config_only):
            return cached / file
        known = "" if "/" in name else f" is none of the shipped models ({', '.join(shipped.SHIPPED)}),"
        near = shipped.nearest(base_name(name))
        hint = f"; did you mean {near!r}?" if near else ""
        raise errors.UserError(
            f"{what}{known} is not a local folder or in the cache, and {hub_client.reason(error)}{hint}"
        ) from None


def base_name(name: str) -> str:
    """Return the last part of a model's name or path, without the owner and the revision."""
    head, at, _ = name.partition("@")
    is_revised = at and head.count("/") <= 1 and not head.startswith((".", "~", "/"))
    return pathlib.PurePath(head if is_revised else name).name


class _Unusable(Exception):
    """The Hub's files of a model are incomplete or damaged."""


def _select(listed: list[str], file: str, config_only: bool, weights: bool) -> list[str]:
    """Return the required files of a repository: `file`, only config.json, or all small files and perhaps the weights.

    Raises _Unusable if the repository lacks the file, config.json or weights.
    """
    ggufs = [name for name in listed if name.endswith(".gguf")]
    if file:
        if file not in listed:
            raise _Unusable(f"it has no file {file}; choices: {', '.join(ggufs) or 'none'}")
        return [file]
    hint = f"name one of its files, such as owner/name:{ggufs[0]}" if ggufs else "choose another model"
    if _CONFIG not in listed:
        raise _Unusable(f"it has no {_CONFIG}: {hint}")
    if config_only:
        return [_CONFIG]
    top = [name for name in listed if "/" not in name]
    best = tensor_files.pick(top)
    if best is None:
        hint += "" if ggufs else " or revision"
        raise _Unusable(f"it has no weights ({', '.join(tensor_files.FORMATS)}): {hint}")
    endings = _SMALL if "tokenizer.json" in top else _SMALL + _TOKENIZERS
    small = [name for name in top if name.endswith(endings) and not name.endswith(".index.json")]
    small += [name for name in listed if name.endswith("_Pooling/config.json")]  # Sentence encoders.
    if not weights:
        return small
    stem, suffix = os.path.splitext(best.removesuffix(".index.json"))
    shards = [name for name in top if name.startswith(f"{stem}-") and name.endswith(suffix)]
    return [*small, best, *(shards if best.endswith(".index.json") else [])]


def _find_local(name: str) -> pathlib.Path | None:
    """Return the local or shipped model of that name; None if the name may be one on the Hub."""
    if not name:
        raise errors.UserError(f"model='': choose {', '.join(shipped.SHIPPED)}, a folder, a file or a Hub name")
    shipped.check_name(name)
    path = pathlib.Path(name).expanduser()
    if path.is_dir():
        names = sorted(file.name for file in path.iterdir())
        ggufs = [] if tensor_files.pick(names) else [file for file in names if file.endswith(".gguf")]
        if len(ggufs) > 1:
            raise errors.UserError(f"{path}: {len(ggufs)} .gguf files, name one: {', '.join(ggufs)}")
        return path.joinpath(*ggufs)
    if path.suffix == ".gguf" and path.is_file():
        return path
    return shipped.locate(name) if name in shipped.SHIPPED else None


def _split(name: str) -> tuple[str, str | None, str]:
    """Split "owner/name@revision:file.gguf" into the Hub name, the revision or None, and the file or ""."""
    head, colon, file = name.rpartition(":")
    head, file = (head, file) if colon and file.endswith(".gguf") else (name, "")
    head, _, revision = head.partition("@")
    return head, revision or None, file


def _download(name: str, revision: str | None, select: Callable[[list[str]], list[str]]) -> pathlib.Path:
    """Download the selected files, remove from the cache those with a wrong checksum, and return their folder."""
    client = huggingface_hub.HfApi()
    info = client.model_info(name, revision=revision, timeout=_TIMEOUT_SECONDS)
    selected = select([sibling.rfilename for sibling in info.siblings or []])
    cached = [huggingface_hub.try_to_load_from_cache(name, file, revision=info.sha) for file in selected]
    patterns = [glob.escape(file) for file in selected]
    folder = pathlib.Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=patterns))
    if all(isinstance(path, str) for path in cached):
        return folder
    # The download itself compares sizes only.
    wrong = client.verify_repo_checksums(name, revision=folder.name).mismatches
    for path in (folder / mismatch["path"] for mismatch in wrong):
        path.resolve().unlink()  # The path is a link to the content.
        path.unlink(missing_ok=True)
    if wrong:
        names = ", ".join(mismatch["path"] for mismatch in wrong)
        raise _Unusable(f"{names} arrived with another checksum than listed, and was removed: start again")
    return folder


def _find_cached(name: str, revision: str | None, needed: str, weights: bool) -> pathlib.Path | None:
    """Return the folder in the cache, or None if it lacks the needed file or the weights."""
    try:
        cached = huggingface_hub.hf_hub_download(name, needed, revision=revision, local_files_only=True)
        folder = pathlib.Path(cached.removesuffix(needed))
        if weights:
            tensor_files.find(folder)
    except (OSError, ValueError, errors.UserError):
        return None
    return folder
