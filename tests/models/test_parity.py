"""Decoders give the numbers of `transformers`' PyTorch models: over whole prompts, and with a prefix read once."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="parity is with PyTorch")
from knnprompt_jax.inference.prompts import packing  # noqa: E402
from knnprompt_jax.models import decoder, head  # noqa: E402
from knnprompt_jax.models.head import Activation  # noqa: E402
from tests.models import torch_models  # noqa: E402

TOLERANCE = 1e-4
# Every family, with windows where it has them, and whatever else changes how tokens attend.
FAMILIES = ["opt-350m", "llama", "mistral", "qwen2-tied", "qwen3", "gemma3", "gemma3-untied"]
FAMILIES += ["gpt_neox", "olmo2", "phi", "phi3-tied", "smollm3-untied"]
TOKENS_BT = np.random.default_rng(0).integers(0, 52, (3, 29))


@jax.jit
def log_probabilities(ours: decoder.Decoder) -> jax.Array:
    return jax.nn.log_softmax(ours.head.logits(ours(jnp.asarray(TOKENS_BT))))


@pytest.mark.parametrize("shape", torch_models.SHAPES)
def test_log_probabilities(pair, shape):
    model, ours = pair(shape)
    want_BTV = torch_models.log_probabilities(model, TOKENS_BT)
    assert np.median(want_BTV.max(-1)) > np.log(0.2), "distributions must be peaked for this to test anything"
    assert np.abs(log_probabilities(ours) - want_BTV).max() < TOLERANCE


@pytest.mark.parametrize("shape", ["opt-350m", "phi"])
def test_bfloat16_stays_near(tmp_path, shape):
    model = torch_models.make(shape)
    torch_models.write_safetensors(model, tmp_path, sharded=False)
    ours = torch_models.load(tmp_path, jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(ours)} == {jnp.dtype(jnp.bfloat16)}
    want_BTV = torch_models.log_probabilities(model, TOKENS_BT)
    divergence_BT = (np.exp(want_BTV) * (want_BTV - log_probabilities(ours))).sum(-1)
    assert np.median(divergence_BT) < 0.01


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_of_an_accelerator_are_those_of_float32(dtype):
    rng = np.random.default_rng(0)
    h_NE, rows_VE = rng.normal(size=(7, 131)).astype(np.float32), jnp.asarray(rng.normal(size=(211, 131)), dtype)
    want_NV = h_NE.astype(np.float64) @ np.asarray(rows_VE, np.float64).T
    np.testing.assert_allclose(head._products(h_NE, rows_VE, "tpu"), want_NV, atol=2e-4)


@pytest.mark.parametrize("shape", FAMILIES)
def test_suffixes_after_a_prefix(pair, shape):
    """The shortest windows end within a suffix, others within the prefix."""
    model, ours = pair(shape)
    prefix, suffixes = TOKENS_BT[0, :11], [TOKENS_BT[0, 11:16], TOKENS_BT[1, :12], TOKENS_BT[2, :1]]
    wholes = [np.concatenate([prefix, suffix])[None] for suffix in suffixes]
    want_JV = np.stack([torch_models.log_probabilities(model, whole)[0, -1] for whole in wholes])
    assert np.abs(_read(ours, prefix, suffixes)[2] - want_JV).max() < TOLERANCE


@pytest.mark.parametrize("whole_last_block", [False, True])
def test_outputs_of_blocks(pair, whole_last_block):
    model, ours = pair("gpt2")
    prefix, suffixes = TOKENS_BT[0, :11], [TOKENS_BT[0, 11:16], TOKENS_BT[1, :12], TOKENS_BT[2, :1]]
    first, mean, last = Activation(1), Activation(1, is_mean=True), Activation(ours.config.num_layers)
    got_JE, got, _ = _read(ours, prefix, suffixes, (last, mean, first), whole_last_block)
    for row, suffix in enumerate(suffixes):
        with torch.no_grad():
            whole = torch.as_tensor(np.concatenate([prefix, suffix]))[None]
            _, first_TD, *_, normed_TD = (
                states[0, len(prefix) :] for states in model(whole, output_hidden_states=True).hidden_states
            )
        np.testing.assert_allclose([got_JE[row], ours.final_norm(got[last][row])], [normed_TD[-1]] * 2, atol=TOLERANCE)
        np.testing.assert_allclose(got[first][row], first_TD[-1], atol=TOLERANCE)
        np.testing.assert_allclose(got[mean][row], first_TD.mean(0), atol=TOLERANCE)


def _read(ours: decoder.Decoder, prefix: np.ndarray, suffixes: list[np.ndarray], *options: Any) -> tuple:
    """Return states, activations and log-probabilities at the ends of three suffixes.

    The first two are packed into one row; prefix and rows are padded.
    """
    tokens_BS, stops_BS, positions_BS = np.zeros((3, 2, 17), np.int32)
    ends = []
    for row, column, suffix in [(0, 0, suffixes[0]), (0, 5, suffixes[1]), (1, 0, suffixes[2])]:
        place = row, slice(column, column + len(suffix))
        tokens_BS[place], stops_BS[place] = suffix, column + len(suffix)
        positions_BS[place] = len(prefix) + np.arange(len(suffix))
        ends.append(row * 17 + column + len(suffix) - 1)
    padded_P = np.pad(prefix, (0, 2)).astype(np.int32)
    return _run(ours, options, padded_P, len(prefix), tokens_BS, stops_BS, positions_BS, np.asarray(ends))


@functools.partial(jax.jit, static_argnums=1)
def _run(ours: decoder.Decoder, options: tuple, prefix_P: jax.Array, length: jax.Array, *batch: jax.Array) -> tuple:
    named = dict(zip(("activations", "whole_last_block"), options, strict=False))
    states_JE, outputs = ours.read_suffixes(
        packing.Step(*batch), prefix=ours.read_prefix(prefix_P, length), use_kernel=False, **named
    )
    return states_JE, outputs, jax.nn.log_softmax(ours.head.logits(states_JE))
