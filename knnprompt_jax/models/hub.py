"""From a model's name to a folder: a local one, or a download from the Hugging Face Hub in one weight format."""

import os
import pathlib

import huggingface_hub
from huggingface_hub import errors as hub_errors

from knnprompt_jax import errors, hub_client
from knnprompt_jax.models import hub_files, tensor_files

_TIMEOUT_SECONDS = 10.0


def resolve(name_or_folder: str, revision: str | None = None, config_only: bool = False) -> pathlib.Path:
    """The folder of a model: `name_or_folder` itself if it is one, otherwise the Hub's snapshot of that name.

    Downloads config, tokenizer and one format of the weights (`config_only`: config.json alone), compares them with the
    Hub's checksums, and goes on where an earlier download broke off. Where the Hub gives nothing, the cache serves.

    Args:
        revision: branch, tag or commit on the Hub.

    Raises:
        UserError: no such folder, model or revision, no right to read it, a file that is missing or not what the Hub lists,
            or neither Hub nor cache has it.
    """
    folder = pathlib.Path(name_or_folder).expanduser()
    if folder.is_dir():
        return folder
    if _looks_like_path(name_or_folder):
        raise errors.UserError(f"no such folder: {name_or_folder}")
    what = f"model {name_or_folder!r}" + (f", revision {revision!r}," if revision else "")
    try:
        return hub_client.patiently(lambda: _download(name_or_folder, revision, config_only))
    except hub_errors.HFValidationError:
        raise errors.UserError(f"{name_or_folder!r} is neither a folder nor a possible Hub name (owner/name)") from None
    except hub_files.Unusable as error:
        raise errors.UserError(f"{what} cannot be used from the Hub: {error}") from None
    except (OSError, hub_errors.HTTPError) as error:
        found = _from_cache(name_or_folder, revision, config_only)
        if found is None:
            raise errors.UserError(
                f"{what} is no local folder and not in the cache, and {hub_client.reason(error)}"
            ) from None
        return found


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith((".", "~", os.sep)) or name.count("/") > 1 or name.endswith("/") or pathlib.Path(name).exists()
    )


def _download(name: str, revision: str | None, config_only: bool) -> pathlib.Path:
    api = huggingface_hub.HfApi()
    info = api.model_info(name, revision=revision, timeout=_TIMEOUT_SECONDS)
    files = hub_files.wanted([sibling.rfilename for sibling in info.siblings or []], config_only)
    cached = [huggingface_hub.try_to_load_from_cache(name, file, revision=info.sha) for file in files]
    folder = pathlib.Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=files))
    if not all(isinstance(path, str) for path in cached):
        # Of the commit that was downloaded: a branch may have moved since.
        listed = api.model_info(name, revision=folder.name, timeout=_TIMEOUT_SECONDS, files_metadata=True)
        hub_files.check(folder, [sibling for sibling in listed.siblings or [] if sibling.rfilename in files])
    return folder


def _from_cache(name: str, revision: str | None, config_only: bool) -> pathlib.Path | None:
    """The snapshot in the cache, unless it lacks a file that a run reads."""
    try:
        listed = huggingface_hub.get_cached_repo_tree(name, revision=revision)
        files = hub_files.wanted([file.path for file in listed], config_only)
    except (hub_errors.CachedRepoTreeNotFoundError, hub_files.Unusable):  # Other programs may have filled the cache.
        files = [hub_files.CONFIG]
    try:
        found = huggingface_hub.snapshot_download(name, revision=revision, local_files_only=True, allow_patterns=files)
        if not config_only:
            tensor_files.find(pathlib.Path(found))
        return pathlib.Path(found)
    except (OSError, errors.UserError):
        return None
