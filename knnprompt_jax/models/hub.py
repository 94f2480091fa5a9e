"""Find the files of a model: a local folder or file, a shipped model, or a download from the Hugging Face Hub."""

import glob
import os
import pathlib
from typing import Any

from knnprompt_jax.common import errors
from knnprompt_jax.models import convert, shipped

_SMALL = ("*.json", "*.txt", "*.jinja", "*.model", "*.tiktoken")  # Configuration, tokenizer and chat template.


def resolve(name_or_path: str, config_only: bool = False, weights: bool = True) -> pathlib.Path:
    """Return the folder of a model, with safetensors, config.json and tokenizer, converted to this form if necessary.

    Args:
        name_or_path: a shipped model, a folder, a `.gguf` file or a Hub name.
        config_only: download only config.json; a `.gguf` file is always whole.
        weights: download the weights too.

    Raises:
        UserError: as `find` and `convert.as_folder`.
    """
    return convert.as_folder(find(name_or_path, config_only, weights))


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
    shipped.check_name(name_or_path)
    path = pathlib.Path(os.path.expanduser(name_or_path))
    if os.path.isdir(path):
        ggufs = [] if convert.pick(os.listdir(path)) else sorted(path.glob("*.gguf"))
        if len(ggufs) > 1:
            listed = ", ".join(file.name for file in ggufs)
            raise errors.UserError(f"{path}: {len(ggufs)} .gguf files, name one: {listed}")
        return ggufs[0] if ggufs else path
    if path.suffix == ".gguf" and os.path.isfile(path):
        return path
    if name_or_path in shipped.SHIPPED:
        return shipped.locate(name_or_path)
    return _download(name_or_path, config_only, weights)


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
        options: dict[str, Any] = {
            "allow_patterns": list(patterns),
            "ignore_patterns": [] if weights else ["*.index.json"],
        }
        return pathlib.Path(huggingface_hub.snapshot_download(repository, revision=revision or None, **options))

    try:
        if file or config_only:
            path = fetch(glob.escape(file or "config.json")) / file
        elif not weights:
            path = fetch(*_SMALL)
        else:
            for pattern in (weight_file.replace(".", "*.") for weight_file in convert.FORMATS):
                path = fetch(*_SMALL, pattern)
                if any(path.glob(pattern)):
                    break
    except (OSError, ValueError, hub_errors.HTTPError) as error:
        raise errors.UserError(
            f"model {name!r} is not a folder, not a .gguf file, not one of {', '.join(shipped.SHIPPED)}, and not "
            f"available from the Hugging Face Hub or its cache: {errors.one_line(error)}"
        ) from None
    if not path.exists():
        raise errors.UserError(f"model {name!r}: {repository} has no file {file}")
    return path
