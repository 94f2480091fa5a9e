"""What the project ships to run without any download: a small GPT-2 and a small task, both made for it."""

import importlib.resources
import pathlib


def model_folder() -> pathlib.Path:
    """The Hugging Face folder of the shipped model."""
    return pathlib.Path(str(importlib.resources.files(__name__) / "model"))
