"""Decoders give the numbers of `transformers`' PyTorch models: part by part, whole, and with a prefix read once."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
from knnprompt_jax.models import attention, decoder, layers  # noqa: E402
from tests.models import torch_models  # noqa: E402

TOLERANCE = 1e-4
SHAPES = sorted(torch_models.SHAPES)
MAIN_SHAPES = ["gpt2", "gpt2-scaled-by-layer", "opt", "opt-350m"]
ROUNDED_SHAPES = [*MAIN_SHAPES, "llama-llama3", "gemma2", "gemma3", "gpt_neox", "olmo2", "phi"]
# Every family, and whatever changes how tokens attend.
ATTENDING_SHAPES = [shape for shape in SHAPES if "-" not in shape or "window" in shape]
ATTENDING_SHAPES += ["gpt2-scaled-by-layer", "mistral-tied", "phi3-tied"]
# These differ from others in their weights alone.
ONLY_WEIGHTS = ("tied", "biases", "even")
# Compiling takes most of the time, and these programs run once.
QUICKLY = {"xla_backend_optimization_level": 0}
RNG = np.random.default_rng(0)
TOKENS_BT = RNG.integers(0, 52, (3, 29))
X_BTD = RNG.normal(size=(3, 13, 35)).astype(np.float32)
# What our parts are called in each family's blocks.
PARTS = {
    "gpt2": {"blocks": "transformer.h", "attention_norm": "ln_1", "attention": "attn", "mlp_norm": "ln_2"},
    "opt": {
        **{"blocks": "model.decoder.layers", "attention_norm": "self_attn_layer_norm", "attention": "self_attn"},
        **{"mlp_norm": "final_layer_norm"},
    },
}


def _blocks(pair: Callable, shape: str, layer: int) -> tuple:
    model, ours = pair(shape)
    names = PARTS[model.config.model_type]
    theirs = model.get_submodule(names["blocks"])[layer]
    return theirs, jax.tree.map(lambda stacked: stacked[layer], ours.blocks), names, ours


def _torch(module: Callable, *args: np.ndarray, **kwargs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        result = module(*map(torch.as_tensor, args), **{key: torch.as_tensor(value) for key, value in kwargs.items()})
    return (result[0] if isinstance(result, tuple) else result).numpy()


@functools.partial(jax.jit, compiler_options=QUICKLY)
def _log_probabilities(ours: decoder.Decoder) -> jax.Array:
    return jax.nn.log_softmax(ours.logits(ours(jnp.asarray(TOKENS_BT))))


def _causal_mask() -> np.ndarray:
    width = X_BTD.shape[1]
    return np.where(np.tril(np.ones((width, width), bool)), 0, -1e30)[None, None].astype(np.float32)


@pytest.mark.parametrize("norm", ["attention_norm", "mlp_norm"])
@pytest.mark.parametrize("shape", MAIN_SHAPES)
def test_layer_norm(pair, shape, norm):
    theirs, ours, names, _ = _blocks(pair, shape, 1)
    want_BTD = _torch(theirs.get_submodule(names[norm]), X_BTD)
    np.testing.assert_allclose(getattr(ours, norm)(X_BTD), want_BTD, atol=TOLERANCE)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("shape", [*MAIN_SHAPES, "gpt2-unscaled"])
def test_attention(pair, shape, layer):
    theirs, ours, names, whole = _blocks(pair, shape, layer)
    norm = (
        theirs.get_submodule(names["attention_norm"]) if "before" in whole.config.norm_places else torch.nn.Identity()
    )
    want_BTD = _torch(theirs.get_submodule(names["attention"]), _torch(norm, X_BTD), attention_mask=_causal_mask())
    reads = []

    def attend(*qkv: jax.Array) -> jax.Array:
        reads.append(whole._causal(layer, X_BTD.shape[1])(*qkv))
        return reads[-1]

    ours(X_BTD, attend)
    np.testing.assert_allclose(ours.attention.output(reads[0]), want_BTD, atol=TOLERANCE)


@pytest.mark.parametrize("shape", MAIN_SHAPES)
def test_mlp(pair, shape):
    theirs, ours, _, whole = _blocks(pair, shape, 1)
    opt = whole.config.family == "opt"
    module = (lambda x: theirs.fc2(theirs.activation_fn(theirs.fc1(x)))) if opt else theirs.mlp
    np.testing.assert_allclose(ours.mlp(X_BTD), _torch(module, X_BTD), atol=TOLERANCE)


@pytest.mark.parametrize("shape", MAIN_SHAPES)
def test_block(pair, shape):
    theirs, ours, _, whole = _blocks(pair, shape, 1)
    want_BTD = _torch(theirs, X_BTD, attention_mask=_causal_mask())
    np.testing.assert_allclose(ours(X_BTD, whole._causal(1, X_BTD.shape[1]))[0], want_BTD, atol=TOLERANCE)


@pytest.mark.parametrize("name", sorted(layers.ACTIVATIONS))
def test_activation(name):
    x = np.linspace(-7, 7, 1001, dtype=np.float32)
    want = _torch(torch_models.transformers.activations.ACT2FN[name], x)
    np.testing.assert_allclose(layers.ACTIVATIONS[name](x), want, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_log_probabilities(pair, shape):
    model, ours = pair(shape)
    want_BTV = torch_models.log_probabilities(model, TOKENS_BT)
    assert np.median(want_BTV.max(-1)) > np.log(0.2), "distributions must be peaked for this to test anything"
    got_BTV = _log_probabilities(ours)
    assert np.abs(got_BTV - want_BTV).max() < TOLERANCE


@pytest.mark.parametrize("shape", ROUNDED_SHAPES)
def test_bfloat16_stays_near(tmp_path, shape):
    model = torch_models.make(shape)
    torch_models.write_safetensors(model, tmp_path, sharded=False)
    ours = torch_models.load(tmp_path, jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(ours)} == {jnp.dtype(jnp.bfloat16)}
    want_BTV = torch_models.log_probabilities(model, TOKENS_BT)
    got_BTV = _log_probabilities(ours)
    divergence_BT = (np.exp(want_BTV) * (want_BTV - got_BTV)).sum(-1)
    assert np.median(divergence_BT) < 0.01


@pytest.mark.parametrize(
    ("shape", "prefix_length", "stable_softmax"),
    [
        *((shape, 11, False) for shape in SHAPES if shape in ATTENDING_SHAPES or not shape.endswith(ONLY_WEIGHTS)),
        *((shape, 11, True) for shape in ATTENDING_SHAPES),
        *((shape, 0, False) for shape in ATTENDING_SHAPES),  # Safe is the same then.
    ],
)
def test_suffixes_after_a_prefix(pair, shape, prefix_length, stable_softmax):
    """The shortest windows end within a suffix, others within the prefix."""
    model, ours = pair(shape)
    prefix = TOKENS_BT[0, :prefix_length]
    suffixes = [TOKENS_BT[0, 11:16], TOKENS_BT[1, :12], TOKENS_BT[2, :1]]
    wholes = [np.concatenate([prefix, suffix])[None] for suffix in suffixes]
    want_JV = [torch_models.log_probabilities(model, whole)[0, -1] for whole in wholes]
    got_JV = jax.nn.log_softmax(ours.logits(_read(ours, prefix, suffixes, stable_softmax)))
    assert np.abs(got_JV - np.stack(want_JV)).max() < TOLERANCE


@pytest.mark.parametrize("prefix_length", [0, 11])
@pytest.mark.parametrize("shape", ["opt-350m"])
def test_suffixes_in_bfloat16(tmp_path, shape, prefix_length):
    torch_models.write_safetensors(torch_models.make(shape), tmp_path, sharded=False)
    suffixes = [TOKENS_BT[0, 11:16], TOKENS_BT[1, :7], TOKENS_BT[2, :1]]
    prefix = TOKENS_BT[0, :prefix_length]
    want_JE = _read(torch_models.load(tmp_path), prefix, suffixes)
    got_JE = _read(torch_models.load(tmp_path, jnp.bfloat16), prefix, suffixes)
    assert got_JE.dtype == jnp.float32
    assert np.linalg.norm(got_JE - want_JE) < 0.03 * np.linalg.norm(want_JE)


def _read(
    ours: decoder.Decoder, prefix: np.ndarray, suffixes: list[np.ndarray], stable_softmax: bool = False
) -> jax.Array:
    """States [3, E] at the ends of three suffixes, the first two packed into one row; prefix and rows are padded."""
    tokens_BS, stops_BS, positions_BS = np.zeros((3, 2, 17), np.int32)
    ends = []
    for row, column, suffix in [(0, 0, suffixes[0]), (0, 5, suffixes[1]), (1, 0, suffixes[2])]:
        place = row, slice(column, column + len(suffix))
        tokens_BS[place], stops_BS[place] = suffix, column + len(suffix)
        positions_BS[place] = len(prefix) + np.arange(len(suffix))
        ends.append(row * 17 + column + len(suffix) - 1)
    padded_P = np.pad(prefix, (0, 2 * bool(len(prefix)))).astype(np.int32)
    known = _read_prefix(ours, padded_P, len(prefix))
    return _read_suffixes(ours, stable_softmax, known, tokens_BS, stops_BS, positions_BS, np.asarray(ends))


_read_prefix = jax.jit(decoder.Decoder.read_prefix, compiler_options=QUICKLY)


@functools.partial(jax.jit, static_argnums=1, compiler_options=QUICKLY)
def _read_suffixes(
    ours: decoder.Decoder, stable_softmax: bool, prefix: attention.Prefix, *batch: jax.Array
) -> jax.Array:
    return ours.read_suffixes(*batch, prefix=prefix, stable_softmax=stable_softmax)
