"""From a model's name to a folder: a local one, or a download from the Hugging Face Hub in one weight format."""

import os
import pathlib

import huggingface_hub
from huggingface_hub import errors as hub_errors

from knnprompt_jax import errors
from knnprompt_jax.models import tensor_files

_ADVICE = "give a local folder, fill the cache on a connected machine, or check the network"
_TIMEOUT_SECONDS = 10.0
# A gated repository is one kind of repository that is not found.
_REFUSALS = (hub_errors.RepositoryNotFoundError, hub_errors.RevisionNotFoundError, hub_errors.HFValidationError)


def resolve(name_or_folder: str, revision: str | None = None, config_only: bool = False) -> pathlib.Path:
    """The folder of a model: `name_or_folder` itself if it is one, otherwise the Hub's snapshot of that name.

    Downloads config, tokenizer and one format of the weights (`config_only`: config.json alone); without a connection,
    the cache serves.

    Raises:
        UserError: no such folder, no such model, no right to read it, or neither Hub nor cache has it.
    """
    folder = pathlib.Path(name_or_folder).expanduser()
    if folder.is_dir():
        return folder
    if _looks_like_path(name_or_folder):
        raise errors.UserError(f"no such folder: {name_or_folder}")
    try:
        info = huggingface_hub.HfApi().model_info(name_or_folder, revision=revision, timeout=_TIMEOUT_SECONDS)
        files = ["config.json"] if config_only else _wanted([sibling.rfilename for sibling in info.siblings or []])
        return pathlib.Path(huggingface_hub.snapshot_download(name_or_folder, revision=revision, allow_patterns=files))
    except _REFUSALS as error:
        raise errors.UserError(_refusal(name_or_folder, revision, error)) from None
    except (OSError, hub_errors.HTTPError) as error:
        return _from_cache(name_or_folder, revision, config_only, error)


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith((".", "~", os.sep)) or name.count("/") > 1 or name.endswith("/") or pathlib.Path(name).exists()
    )


def _wanted(files: list[str]) -> list[str]:
    """The files at the top of a repository that a run reads: everything small, and the preferred weights."""
    top = [file for file in files if "/" not in file]
    weights = tensor_files.pick(top)
    small = [file for file in top if file.endswith((".json", ".txt")) and not file.endswith(".index.json")]
    small += [file for file in files if file.endswith("_Pooling/config.json")]  # Of sentence encoders.
    if weights is None:
        return small
    if not weights.endswith(".index.json"):
        return [*small, weights]
    stem, suffix = os.path.splitext(weights.removesuffix(".index.json"))
    return [*small, weights, *(file for file in top if file.startswith(f"{stem}-") and file.endswith(suffix))]


def _refusal(name: str, revision: str | None, error: Exception) -> str:
    if isinstance(error, hub_errors.GatedRepoError):
        return f"model {name!r} is gated: accept its terms on the Hub and set HF_TOKEN, or give a local folder"
    if isinstance(error, hub_errors.RevisionNotFoundError):
        return f"model {name!r} has no revision {revision!r} on the Hub"
    if isinstance(error, hub_errors.RepositoryNotFoundError):
        return f"no folder and no public Hub model is called {name!r}; check the name, or set HF_TOKEN if it is private"
    return f"{name!r} is neither a folder nor a possible Hub name (owner/name)"


def _from_cache(name: str, revision: str | None, config_only: bool, error: Exception) -> pathlib.Path:
    try:
        # Asking for all files would refuse a snapshot that has only one weight format.
        found = huggingface_hub.snapshot_download(
            name, revision=revision, local_files_only=True, allow_patterns=["config.json"]
        )
        if not config_only:
            tensor_files.find(pathlib.Path(found))
        return pathlib.Path(found)
    except (OSError, hub_errors.HTTPError, errors.UserError):
        offline = isinstance(error, hub_errors.OfflineModeIsEnabled)
        detail = (str(error) or type(error).__name__).splitlines()[0]
        reason = "HF_HUB_OFFLINE is set" if offline else f"the Hub cannot be read ({detail})"
        raise errors.UserError(
            f"model {name!r} is no local folder and not in the cache, and {reason}: {_ADVICE}"
        ) from None
