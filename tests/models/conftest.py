"""Random models of `transformers` and our decoders with their weights, each made once."""

import functools
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """`pair(shape)` gives the PyTorch model of that shape and our decoder, loaded from the folder it was saved to."""
    from tests.models import torch_models

    @functools.cache
    def build(shape: str) -> tuple:
        model, folder = torch_models.make(shape), tmp_path_factory.mktemp(shape)
        torch_models.write_safetensors(model, folder, sharded=False)
        return model, torch_models.load(folder)

    return build
