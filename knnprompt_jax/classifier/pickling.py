"""Fitted classifiers in pickles: the files of a saved folder, beside the model, which is named and not copied."""

import pathlib
import tempfile
from typing import Any

from knnprompt_jax import lm as lm_lib
from knnprompt_jax.classifier import saving
from knnprompt_jax.classifier.core import Classifier


def reduce(classifier: Classifier) -> tuple[Any, ...]:
    """What `pickle` makes a fitted classifier of: its type, its model and the saved files by their names."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place, "classifier")
        with saving.lock(folder):
            saving.save(classifier, folder, overwrite=False)
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return restore, (type(classifier), classifier.lm, files)


def restore(kind: type[saving.C], lm: lm_lib.LanguageModel, files: dict[str, bytes]) -> saving.C:
    """The classifier of these files; raises UserError as `saving.Saved.classifier`."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place, "classifier")
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return saving.read(folder).classifier(kind, lm)
