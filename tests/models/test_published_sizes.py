"""Every published size builds, without its weights."""

import math

import pytest
from flax import nnx

from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import conversion, registry

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
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "meta-llama/Meta-Llama-3-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "HuggingFaceTB/SmolLM2-360M": 361_821_120,
    "HuggingFaceTB/SmolLM2-1.7B": 1_711_376_384,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mistral-7B-v0.3": 7_248_023_552,
    "mistralai/Mistral-Nemo-Base-2407": 12_247_782_400,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "google/gemma-2-2b": 2_614_341_888,
    "google/gemma-2-9b": 9_241_705_984,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-3-270m": 268_098_176,
    "google/gemma-3-1b-pt": 999_885_952,
    "EleutherAI/pythia-70m": 70_426_624,
    "EleutherAI/pythia-160m": 162_322_944,
    "EleutherAI/pythia-410m": 405_334_016,
    "EleutherAI/pythia-1b": 1_011_781_632,
    "EleutherAI/pythia-1.4b": 1_414_647_808,
    "EleutherAI/pythia-2.8b": 2_775_208_960,
    "EleutherAI/pythia-6.9b": 6_857_302_016,
    "EleutherAI/pythia-12b": 11_846_072_320,
    "allenai/OLMo-2-0425-1B": 1_484_916_736,
    "allenai/OLMo-2-1124-7B": 7_298_617_344,
    "allenai/OLMo-2-1124-13B": 13_716_198_400,
    "allenai/OLMo-2-0325-32B": 32_234_279_936,
    "microsoft/phi-1_5": 1_418_270_720,
    "microsoft/phi-2": 2_779_683_840,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "microsoft/Phi-3-medium-4k-instruct": 13_960_238_080,
    "microsoft/phi-4": 14_659_507_200,
    "HuggingFaceTB/SmolLM3-3B-Base": 3_075_098_624,
    "google-bert/bert-base-uncased": 109_482_240,
    "google-bert/bert-large-uncased": 335_141_888,
    "sentence-transformers/all-MiniLM-L6-v2": 22_713_216,
    "cambridgeltl/trans-encoder-bi-simcse-bert-base": 109_482_240,
    "princeton-nlp/unsup-simcse-bert-base-uncased": 109_482_240,
}
PUBLISHED = {name: hf for family in registry.FAMILIES.values() for name, hf in family.PUBLISHED.items()}


def _config_and_leaves(name: str) -> tuple[config_lib.DecoderConfig, dict[str, tuple[int, ...]]]:
    """The model, and path → shape of every weight."""
    config = registry.config_from_hf(PUBLISHED[name], registry.FAMILIES)
    state = nnx.to_flat_state(nnx.state(registry.abstract(config)))
    return config, {".".join(path): variable.shape for path, variable in state}


def test_every_size_is_counted():
    assert PARAMETERS.keys() == PUBLISHED.keys()


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_tables_cover_every_weight_once(name):
    config, leaves = _config_and_leaves(name)
    assert sum(map(math.prod, leaves.values())) == PARAMETERS[name] == registry.num_parameters(config)
    family = registry.FAMILIES[config.family]
    for table in filter(None, (family.TABLE, getattr(family, "FLAX_TABLE", None))):
        pieces = conversion.expand(table, config, leaves)
        sizes = dict.fromkeys(leaves, 0)
        theirs = {piece.theirs: math.prod(piece.shape) for piece in pieces}
        for piece in pieces:
            sizes[piece.ours] += math.prod(piece.box)
        assert sizes == {path: math.prod(shape) for path, shape in leaves.items()}
        assert sum(theirs.values()) == sum(sizes.values())


@pytest.mark.parametrize("name", sorted(registry.PUBLISHED))
def test_names_and_shapes_are_those_of_transformers(name):
    torch = pytest.importorskip("torch", reason="the names are those of PyTorch's models")
    import transformers

    from tests.models import torch_models

    hf = dict(registry.PUBLISHED[name])
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.CONFIG_MAPPING[hf["model_type"]].from_dict(hf)
        )
    theirs = {torch_models.published_name(model, key): tuple(value.shape) for key, value in model.named_parameters()}
    config, leaves = _config_and_leaves(name)
    pieces = conversion.expand(registry.FAMILIES[config.family].TABLE, config, leaves)
    assert {piece.theirs: piece.shape for piece in pieces} == theirs
