"""Every published size builds, without its weights."""

import math

import pytest
from flax import nnx

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import conversion, decoder, registry

PARAMETERS = {
    "distilgpt2": 81_912_576,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "facebook/opt-125m": 125_239_296,
    "facebook/opt-350m": 331_196_416,
    "facebook/opt-1.3b": 1_315_758_080,
    "facebook/opt-2.7b": 2_651_596_800,
    "facebook/opt-6.7b": 6_658_473_984,
    "facebook/opt-13b": 12_853_473_280,
    "facebook/opt-30b": 29_974_540_288,
    "facebook/opt-66b": 65_719_701_504,
}


def _leaves(config: config_lib.DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Path → shape of every weight."""
    abstract = nnx.eval_shape(lambda: decoder.Decoder(config, nnx.Rngs(0)))
    return {".".join(path): variable.shape for path, variable in nnx.to_flat_state(nnx.state(abstract))}


def test_every_size_is_counted():
    assert PARAMETERS.keys() == registry.PUBLISHED.keys()


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_builds_abstractly(name):
    config = registry.published(name)
    assert sum(map(math.prod, _leaves(config).values())) == PARAMETERS[name] == config.num_parameters


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_tables_cover_every_weight_once(name):
    config = registry.published(name)
    leaves = _leaves(config)
    family = registry.FAMILIES[config.family]
    for table in (family.table, family.flax_table):
        pieces = conversion.expand(table, config, leaves)
        sizes = dict.fromkeys(leaves, 0)
        for piece in pieces:
            assert math.prod(piece.shape) == math.prod(piece.box)
            sizes[piece.ours] += math.prod(piece.box)
        assert sizes == {path: math.prod(shape) for path, shape in leaves.items()}
        assert len({piece.theirs for piece in pieces}) == len(pieces)


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_names_and_shapes_are_those_of_transformers(name):
    torch = pytest.importorskip("torch", reason="the names are those of PyTorch's models")
    import transformers

    config = registry.published(name)
    classes = {"gpt2": transformers.GPT2LMHeadModel, "opt": transformers.OPTForCausalLM}
    sizes = {"vocab_size": config.vocab_size, "hidden_size": config.width, "num_hidden_layers": config.num_layers}
    sizes |= {"num_attention_heads": config.num_heads, "max_position_embeddings": config.num_positions}
    if config.family == "opt":
        sizes |= {"ffn_dim": config.mlp_width, "word_embed_proj_dim": config.embed_width}
        sizes |= {"do_layer_norm_before": config.norm_first}
    kind = classes[config.family]
    with torch.device("meta"):
        theirs = {key: tuple(value.shape) for key, value in kind(kind.config_class(**sizes)).named_parameters()}
    pieces = conversion.expand(registry.FAMILIES[config.family].table, config, _leaves(config))
    assert {piece.theirs: piece.shape for piece in pieces} == theirs
