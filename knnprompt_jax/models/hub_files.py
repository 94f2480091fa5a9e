"""The files of a Hub model that a run reads, and whether they arrived as the Hub lists them."""

import dataclasses
import os
import pathlib

import huggingface_hub

from knnprompt_jax.models import tensor_files

CONFIG = "config.json"


class Unusable(Exception):
    """What the Hub has of the model, or sent of it, is of no use."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """What a run reads of a repository: `file` alone, config.json alone, or with it all that is small and, if asked for, the weights."""

    file: str = ""
    config_only: bool = False
    weights: bool = True

    def of(self, files: list[str]) -> list[str]:
        """The selected files of a repository's. Raises Unusable: there is no such file, no config.json, or no weights."""
        if self.file and self.file not in files:
            raise Unusable(f"it has no file {self.file}; choices: {', '.join(_ggufs(files)) or 'none'}")
        if self.file:
            return [self.file]
        hint = f"name one of its files, such as owner/name:{_ggufs(files)[0]}" if _ggufs(files) else ""
        if CONFIG not in files:
            raise Unusable(f"it has no {CONFIG}: {hint or 'choose another model'}")
        if self.config_only:
            return [CONFIG]
        top = [file for file in files if "/" not in file]
        weights = tensor_files.pick(top)
        if weights is None:
            formats = ", ".join(tensor_files.FORMATS)
            raise Unusable(f"it has no weights ({formats}): {hint or 'choose another model or revision'}")
        small = [file for file in top if file.endswith((".json", ".txt")) and not file.endswith(".index.json")]
        small += [file for file in files if file.endswith("_Pooling/config.json")]  # Of sentence encoders.
        if not self.weights:
            return small
        if not weights.endswith(".index.json"):
            return [*small, weights]
        stem, suffix = os.path.splitext(weights.removesuffix(".index.json"))
        return [*small, weights, *(file for file in top if file.startswith(f"{stem}-") and file.endswith(suffix))]


def _ggufs(files: list[str]) -> list[str]:
    return [file for file in files if file.endswith(".gguf")]


def check(name: str, folder: pathlib.Path) -> None:
    """Compares a snapshot with the Hub's checksums and removes from the cache what differs; a download compares sizes alone.

    Raises:
        Unusable: a file is not what the Hub lists.
    """
    wrong = huggingface_hub.HfApi().verify_repo_checksums(name, revision=folder.name).mismatches
    for path in (folder / mismatch["path"] for mismatch in wrong):
        path.resolve().unlink()  # The link in the snapshot leads to the bytes.
        path.unlink(missing_ok=True)
    if wrong:
        names = ", ".join(mismatch["path"] for mismatch in wrong)
        raise Unusable(f"{names} arrived with another checksum than listed, and was removed: start again")
