"""Every published size builds without weights, with the parameter count, names and shapes of `transformers`."""

import json
import math
import pathlib

import pytest
from flax import nnx

from knnprompt_jax.models import registry
from knnprompt_jax.models.families import weight_names

PARAMETERS = json.loads(pathlib.Path(__file__).with_name("published_parameters.json").read_text(encoding="utf-8"))
PUBLISHED = registry.PUBLISHED_CONFIGS


def test_every_size_is_counted():
    assert PARAMETERS.keys() == PUBLISHED.keys()


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_tables_cover_every_weight_once(name):
    config = registry.config_from_hf(PUBLISHED[name], registry.FAMILIES)
    state = nnx.to_flat_state(nnx.state(registry.abstract(config)))
    sizes_of_leaves = {".".join(path): math.prod(leaf.shape) for path, leaf in state}
    assert sum(sizes_of_leaves.values()) == PARAMETERS[name] == registry.num_parameters(config)
    pieces = weight_names.expand(registry.FAMILIES[config.family].table, config, sizes_of_leaves)
    sizes = dict.fromkeys(sizes_of_leaves, 0)
    for piece in pieces:
        sizes[piece.ours] += math.prod(piece.box)
    assert sizes == sizes_of_leaves
    assert sum({piece.theirs: math.prod(piece.shape) for piece in pieces}.values()) == PARAMETERS[name]
    if config.family not in registry.ENCODERS:
        assert {piece.theirs: piece.shape for piece in pieces} == _theirs(name)


def _theirs(name: str) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the weights that `transformers` would build."""
    torch = pytest.importorskip("torch", reason="the names are those of PyTorch's models")
    import transformers

    from tests.models import torch_models

    hf = dict(PUBLISHED[name])
    with torch.device("meta"):
        config = transformers.CONFIG_MAPPING[hf["model_type"]].from_dict(hf)
        model = transformers.AutoModelForCausalLM.from_config(config)
    return {torch_models.published_name(model, key): tuple(value.shape) for key, value in model.named_parameters()}
