"""Sentence encoders with Gemma's transformer and dense layers give the embeddings of `sentence-transformers`."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
import tokenizers

from knnprompt_jax.common import errors
from knnprompt_jax.models import encoders, registry
from tests import processes

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
sentence_transformers = pytest.importorskip("sentence_transformers", reason="it writes and reads the folders")
import transformers  # noqa: E402
from sentence_transformers.sentence_transformer import modules as models  # noqa: E402

from tests.models import gguf_tokenizers, torch_models  # noqa: E402

PROMPTS = {"query": "task: search result | query: ", "Classification": "task: classification | query: "}
TEXTS = ["the sun", "", "a man plays the violin while the sun is warm", "a dog and " * 7, "words without end " * 30]
SIZES = {"hidden_size": 35, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 6, "num_hidden_layers": 4}
SIZES |= {"intermediate_size": 41, "max_position_embeddings": 97, "query_pre_attn_scalar": 11}
SIZES |= {"sliding_window": 12, "sliding_window_pattern": 3, "use_bidirectional_attention": True}
LONGEST = 71


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Return random weights as `sentence-transformers` saves them, in the layout of google/embeddinggemma-300m."""
    bare, folder = tmp_path_factory.mktemp("bare"), tmp_path_factory.mktemp("gemma-encoder")
    tokenizer = gguf_tokenizers.sentencepiece(prefix=False).tokenizer
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("</s>", 2), ("<s>", 1))
    config = transformers.Gemma3TextConfig(**SIZES, vocab_size=tokenizer.get_vocab_size())
    torch_models.build(config, 7, transformers.AutoModel).save_pretrained(bare)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<unk>").save_pretrained(bare)
    torch.manual_seed(0)
    modules = [models.Transformer(str(bare), max_seq_length=LONGEST), models.Pooling(35, "mean")]
    first = models.Dense(35, 53, bias=False, activation_function=torch.nn.Identity())
    modules += [first, models.Dense(53, 29), models.Normalize()]
    whole = sentence_transformers.SentenceTransformer(modules=modules, prompts=PROMPTS, device="cpu")
    whole.save_pretrained(str(folder))
    return folder


def copy_with(folder: pathlib.Path, copy: pathlib.Path, file: str, **values: object) -> pathlib.Path:
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    (copy / file).write_text(json.dumps(json.loads((copy / file).read_text()) | values))
    return copy


def by_torch(folder: pathlib.Path) -> np.ndarray:
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    lengths = [len(model.tokenizer(PROMPTS["Classification"] + text)["input_ids"]) for text in TEXTS]
    assert min(lengths) > SIZES["sliding_window"] and len(set(lengths)) == len(TEXTS) and max(lengths) > LONGEST
    return model.encode(TEXTS, prompt_name="Classification")


def test_embeddings(folder, tmp_path):
    """The same weights with causal attention, which a folder may ask for, give other embeddings."""
    found_ND = encoders.embed(str(folder), TEXTS)
    np.testing.assert_allclose(found_ND, by_torch(folder), atol=1e-5)
    copy = copy_with(folder, tmp_path, "config.json", use_bidirectional_attention=False)
    causal_ND = encoders.embed(str(copy), TEXTS)
    np.testing.assert_allclose(causal_ND, by_torch(copy), atol=1e-5)
    assert (np.abs(found_ND - causal_ND).max(-1) > 0.05).all()


def test_bfloat16_stays_near(folder):
    encoder = encoders.SentenceEncoder(str(folder), "bfloat16")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(encoder._params)} == {"bfloat16"}
    vectors_ND = encoder.encode(TEXTS)
    cosines_N = (vectors_ND * encoders.embed(str(folder), TEXTS)).sum(-1) / np.linalg.norm(vectors_ND, axis=-1)
    assert (cosines_N > 0.999).all()


def test_eight_devices_share_a_batch(folder, tmp_path):
    code = f"""
import jax, numpy
from knnprompt_jax.models import encoders
numpy.save({str(tmp_path / "vectors.npy")!r}, encoders.embed({str(folder)!r}, {TEXTS}))
assert all(len(leaf.devices()) == 8 for leaf in jax.tree.leaves(encoders._load({str(folder)!r})._params))"""
    processes.run("-c", code, devices=8)
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), encoders.embed(str(folder), TEXTS), atol=1e-5)


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("1_Pooling", {"pooling_mode": "max"}, "pooling='max' is not supported"),
        ("1_Pooling", {"include_prompt": False}, "include_prompt"),
        ("2_Dense", {"activation_function": "torch.nn.modules.activation.GELU"}, "activation_function="),
        ("2_Dense", {"bias": True}, "its tensors are"),
        ("3_Dense", {"in_features": 35}, "in_features=35"),
    ],
)
def test_other_modules_are_refused(folder, tmp_path, file, values, message):
    with pytest.raises(errors.UserError, match=message):
        encoders.describe(str(copy_with(folder, tmp_path, f"{file}/config.json", **values)))


def test_an_encoder_is_no_language_model(folder):
    with pytest.raises(errors.UserError, match="use_bidirectional_attention=True"):
        registry.describe(str(folder), registry.FAMILIES)
