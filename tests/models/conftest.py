"""Random models of `transformers` and our decoders with the same weights, each made once."""

import functools
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """Return `pair(shape)`: PyTorch's model of a shape, and our decoder loaded from that model's saved folder."""
    from tests.models import torch_models

    @functools.cache
    def build(shape: str) -> tuple:
        model, folder = torch_models.make(shape), tmp_path_factory.mktemp(shape)
        torch_models.write_safetensors(model, folder, sharded=False)
        return model, torch_models.load(folder)

    return build
