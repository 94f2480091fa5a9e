"""The files of a Hub model that a run reads, and whether they arrived as the Hub lists them."""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Iterable

from huggingface_hub import hf_api

from knnprompt_jax.models import tensor_files

CONFIG = "config.json"


class Unusable(Exception):
    """What the Hub has of the model, or sent of it, is of no use."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """What a run reads of a repository: `file` alone, config.json alone, or with it all that is small and the weights."""

    file: str = ""
    config_only: bool = False

    def of(self, files: list[str]) -> list[str]:
        """The selected ones of all files of a repository.

        Raises:
            Unusable: there is no such file, no config.json, or no weights.
        """
        if not self.file:
            return _wanted(files, self.config_only)
        if self.file not in files:
            choices = ", ".join(_ggufs(files)) or "none"
            raise Unusable(f"it has no file {self.file}; choices: {choices}")
        return [self.file]


def _wanted(files: list[str], config_only: bool) -> list[str]:
    """Config.json alone, or with it everything small at the top and the preferred weights."""
    hint = f"name one of its files, such as owner/name:{_ggufs(files)[0]}" if _ggufs(files) else ""
    if CONFIG not in files:
        raise Unusable(f"it has no {CONFIG}: {hint or 'choose another model'}")
    if config_only:
        return [CONFIG]
    top = [file for file in files if "/" not in file]
    weights = tensor_files.pick(top)
    if weights is None:
        raise Unusable(
            f"it has no weights ({', '.join(tensor_files.FORMATS)}): {hint or 'choose another model or revision'}"
        )
    small = [file for file in top if file.endswith((".json", ".txt")) and not file.endswith(".index.json")]
    small += [file for file in files if file.endswith("_Pooling/config.json")]  # Of sentence encoders.
    if not weights.endswith(".index.json"):
        return [*small, weights]
    stem, suffix = os.path.splitext(weights.removesuffix(".index.json"))
    return [*small, weights, *(file for file in top if file.startswith(f"{stem}-") and file.endswith(suffix))]


def _ggufs(files: list[str]) -> list[str]:
    return [file for file in files if file.endswith(".gguf")]


def check(folder: pathlib.Path, listed: Iterable[hf_api.RepoSibling]) -> None:
    """Compares files with their listing and removes from the cache what differs; the client itself compares sizes alone.

    Raises:
        Unusable: a file is not what the Hub lists.
    """
    for sibling in listed:
        path = folder / sibling.rfilename
        if _is_as_listed(path, sibling):
            continue
        path.resolve().unlink()  # The link in the snapshot leads to the bytes.
        path.unlink(missing_ok=True)
        raise Unusable(f"{sibling.rfilename} arrived with another checksum than listed, and was removed: start again")


def _is_as_listed(path: pathlib.Path, sibling: hf_api.RepoSibling) -> bool:
    """By SHA-256 for files in large-file storage, by git's SHA-1 for others; mirrors may list neither."""
    with path.open("rb") as stream:
        if sibling.lfs:
            return hashlib.file_digest(stream, "sha256").hexdigest() == sibling.lfs.sha256
        content = stream.read()
    return sibling.blob_id in (None, hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())
