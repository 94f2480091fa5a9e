"""Published shapes by their names, with sizes of one's choice, and GGUF files."""

import pytest

from knnprompt_jax import errors
from knnprompt_jax.benchmark import settings, subjects
from knnprompt_jax.models import registry
from knnprompt_jax.models.gguf import config as gguf_config


def choose(**options):
    return subjects.choose(settings.BenchmarkSettings(**options))


@pytest.mark.parametrize("name", ["gpt2-xl", "opt-350m", "facebook/opt-13b", "Qwen3-0.6B", "EleutherAI/pythia-1b"])
def test_every_published_shape_has_its_name(name):
    config = choose(model_shape=name).config
    assert config in [
        registry.published(whole) for whole in registry.PUBLISHED if whole == name or whole.endswith(f"/{name}")
    ]


def test_no_two_shapes_have_the_same_name():
    short = [name.rsplit("/", 1)[-1] for name in registry.PUBLISHED]
    assert len(set(short)) == len(short)


@pytest.mark.parametrize(
    "shape, sizes, expected",
    [
        ("gpt2", {"heads": 5}, {"mlp_width": 80, "num_kv_heads": 5, "head_size": 4}),
        ("opt-350m", {"heads": 5}, {"mlp_width": 80, "embed_width": 20, "num_positions": 2048}),
        ("pythia-70m", {"width": 40, "heads": 5}, {"mlp_width": 160, "head_size": 8}),
        # 1,536 of 576 is 2 ⅔, and three query heads share a key.
        ("SmolLM2-135M", {"width": 42, "heads": 21}, {"mlp_width": 112, "num_kv_heads": 7, "head_size": 2}),
        ("Qwen3-0.6B", {"heads": 6, "head_size": 14}, {"mlp_width": 60, "num_kv_heads": 3, "head_size": 14}),
        ("Qwen3-0.6B", {}, {"num_heads": 16, "num_kv_heads": 8, "head_size": 128}),
        ("gemma-3-270m", {"heads": 8, "head_size": 10}, {"num_kv_heads": 2, "embed_scale": 20**0.5}),
    ],
)
def test_sizes_that_replace_the_shape_s(shape, sizes, expected):
    config = choose(model_shape=shape, **{"width": 20, "layers": 3, "vocab_size": 101, **sizes}).config
    own = {"width": sizes.get("width", 20), "num_layers": 3, "vocab_size": 101, **expected}
    assert {name: getattr(config, name) for name in own} == own
    assert config.family == registry.config_from_hf(subjects._published(shape)).family


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"model_shape": "gpt5"}, "no published shape is called 'gpt5'; choices: distilgpt2, gpt2, "),
        ({"width": 20, "heads": 7}, "heads=7 does not divide the width 20"),
        ({"model_shape": "SmolLM2-135M", "width": 20, "heads": 5}, "heads=5 is no multiple of 3: in SmolLM2-135M, 3"),
        ({"model_shape": "opt-125m", "head_size": 16}, "opt-125m with the sizes given: config.json: head_dim=16: not"),
        ({"model_shape": "pythia-70m", "width": 12, "heads": 3}, "pythia-70m with the sizes given: config.json: "),
        ({"gguf": "smollm2", "width": 20, "layers": 2}, "gguf='smollm2' has its own sizes; leave out width, layers"),
        ({"gguf": "./absent.gguf"}, "no such file: ./absent.gguf"),
        ({"gguf": "tiny"}, "gguf='tiny': .* is no GGUF file"),
    ],
)
def test_mistakes(wrong, message):
    with pytest.raises(errors.UserError, match=message):
        choose(**wrong)


def test_a_file_brings_its_shape(llama_file):
    subject = choose(gguf=str(llama_file))
    assert subject.file == llama_file and subject.hf == gguf_config.config_json(llama_file)
    assert (subject.config.family, subject.config.num_heads, subject.config.num_kv_heads) == ("llama", 6, 2)
    assert subject.stored == ("Q4_1",) and subject.is_quantised
