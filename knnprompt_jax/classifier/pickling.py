"""Fitted classifiers in pickles: the files of a saved folder, beside the model, which is named and not copied."""

import pathlib
import tempfile
from typing import TYPE_CHECKING, Any

from knnprompt_jax import lm as lm_lib

if TYPE_CHECKING:
    from knnprompt_jax.classifier.estimator import KNNPrompting


def reduce(classifier: "KNNPrompting") -> tuple[Any, ...]:
    """What `pickle` makes a fitted classifier of: its type, its model and the saved files by their names."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place, "classifier")
        classifier.save(folder)
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return restore, (type(classifier), classifier.lm, files)


def restore(kind: "type[KNNPrompting]", lm: lm_lib.LanguageModel, files: dict[str, bytes]) -> "KNNPrompting":
    """The classifier of these files; raises UserError as `KNNPrompting.load`."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place, "classifier")
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return kind.load(folder, lm)
