"""Our BERT gives the numbers of `transformers`' PyTorch BERT, from every published weight format."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
import transformers  # noqa: E402

from knnprompt_jax import errors  # noqa: E402
from knnprompt_jax.models import registry  # noqa: E402
from knnprompt_jax.models.families import bert  # noqa: E402
from knnprompt_jax.models.weights import checkpoints  # noqa: E402
from tests.models import torch_models  # noqa: E402

TOLERANCE = 1e-4
_SIZES = {"vocab_size": 53, "hidden_size": 35, "num_attention_heads": 5, "num_hidden_layers": 2}
HF = transformers.BertConfig(**_SIZES, intermediate_size=41, max_position_embeddings=29, type_vocab_size=3)
RNG = np.random.default_rng(0)
TOKENS_BT = RNG.integers(0, 53, (3, 23))
TYPES_BT = RNG.integers(0, 3, (3, 23))
LENGTHS_B = np.array([23, 7, 1])


@pytest.fixture(scope="module")
def model() -> transformers.BertModel:
    return torch_models.build(HF, 5, transformers.AutoModel)


def _load(folder) -> bert.Encoder:
    config, folder = registry.describe(str(folder), families=registry.ENCODERS)
    return checkpoints.load(folder, config, jnp.float32)


@pytest.fixture(scope="module")
def ours(model, tmp_path_factory) -> bert.Encoder:
    folder = tmp_path_factory.mktemp("bert")
    model.save_pretrained(folder)
    return _load(folder)


@nnx.jit
def _read(ours: bert.Encoder, tokens_BT: np.ndarray) -> tuple[jax.Array, jax.Array]:
    hidden_BTD = ours(tokens_BT, jnp.asarray(LENGTHS_B), jnp.asarray(TYPES_BT))
    return hidden_BTD, ours.pool(hidden_BTD)


def test_hidden_states_and_pooler(model, ours):
    mask_BT = torch.as_tensor(np.arange(23) < LENGTHS_B[:, None]).long()
    with torch.no_grad():
        want = model(torch.as_tensor(TOKENS_BT), mask_BT, torch.as_tensor(TYPES_BT))
    hidden_BTD, pooled_BD = _read(ours, TOKENS_BT)
    for row, length in enumerate(LENGTHS_B):
        np.testing.assert_allclose(hidden_BTD[row, :length], want.last_hidden_state[row, :length], atol=TOLERANCE)
    np.testing.assert_allclose(pooled_BD, want.pooler_output, atol=TOLERANCE)


def test_older_names_and_flax_files_load_alike(model, ours, tmp_path):
    """Files have names with `bert.` and older endings, position numbers and a pretraining head."""
    older = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    state = {f"bert.{re.sub('LayerNorm.*', lambda m: older[m[0]], k)}": v for k, v in model.state_dict().items()}
    state |= {"cls.predictions.bias": torch.ones(53), "embeddings.position_ids": torch.arange(29)[None]}
    HF.save_pretrained(tmp_path)
    torch.save(state, tmp_path / "pytorch_model.bin")
    jax.tree.map(np.testing.assert_array_equal, nnx.state(_load(tmp_path)), nnx.state(ours))
    (tmp_path / "pytorch_model.bin").unlink()
    arrays = dict(torch_models._flax(key, value.numpy()) for key, value in model.state_dict().items())
    torch_models._save_flax(arrays, tmp_path / "flax_model.msgpack")
    jax.tree.map(np.testing.assert_array_equal, nnx.state(_load(tmp_path)), nnx.state(ours))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key' is not supported"),
        ({"is_decoder": True}, "is_decoder=True is not supported"),
        ({"hidden_act": "swish"}, "hidden_act='swish' is not supported"),
    ],
)
def test_other_architectures_are_refused(tmp_path, change, message):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **change}))
    with pytest.raises(errors.UserError, match=message):
        registry.describe(str(tmp_path), families=registry.ENCODERS)
    HF.save_pretrained(tmp_path)
    with pytest.raises(errors.UserError, match="model_type='bert' is not supported; choices: gpt2, opt"):
        registry.describe(str(tmp_path))
