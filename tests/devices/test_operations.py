"""Counted operations equal counts by hand, counts token by token, and what XLA counts in a program without loops."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from knnprompt_jax.devices import operations
from knnprompt_jax.inference.prompts import packing
from knnprompt_jax.models import attention, registry
from tests import prompt_groups


def make_groups(*sizes, alike=False):
    """Return groups of (prefix tokens, suffix lengths).

    No two suffixes begin with the same token or, if `alike`, all tokens are the same.
    """
    return [
        prompt_groups.make_group([[0 if alike else place] * n for place, n in enumerate(lengths)], [0] * prefix)
        for prefix, lengths in sizes
    ]


def token_by_token(config, groups):
    """The operations that are required: every matrix product of every token written out."""
    width, pairs_cost = config.width, 4 * config.num_heads * config.head_size
    query = output = 2 * width * config.num_heads * config.head_size
    key = value = 2 * width * config.num_kv_heads * config.head_size
    mlp = (3 if config.gated_mlp else 2) * 2 * width * config.mlp_width
    head, bridge = 2 * config.vocab_size * config.embed_width, 2 * width * config.embed_width * config.has_projections
    needed = 0
    for group in groups:
        prefix = len(group.prefix_P)
        leads = {tuple(suffix[: token + 1]) for suffix in group.suffixes for token in range(len(suffix))}
        for attended in (*range(1, prefix + 1), *(prefix + len(lead) for lead in leads)):
            needed += bridge + config.num_layers * (key + value)
            needed += (config.num_layers - 1) * (query + output + mlp + pairs_cost * attended)
        for suffix in group.suffixes:
            needed += query + output + mlp + pairs_cost * (prefix + len(suffix)) + head + bridge
    return needed


@pytest.mark.parametrize("shape", ["gpt2", "facebook/opt-350m", "HuggingFaceTB/SmolLM2-135M", "Qwen/Qwen3-0.6B"])
@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("sizes", [[(61, [13, 1, 7])], [(0, [5])], [(17, [2, 3]), (0, [23, 19])]])
def test_token_by_token(shape, sizes, alike):
    config, groups = registry.config_from_hf(registry.PUBLISHED[shape]), make_groups(*sizes, alike=alike)
    assert operations.required(config, groups) == token_by_token(config, groups)


@pytest.mark.parametrize("shape", ["gpt2", "HuggingFaceTB/SmolLM2-135M"])
def test_a_step_costs_what_xla_counts(shape):
    """Two layers: XLA counts the body of a loop once, and the loop over all blocks but the last runs once."""
    config = dataclasses.replace(registry.config_from_hf(registry.PUBLISHED[shape]), num_layers=2, vocab_size=1009)
    packed = packing.PackShape(prefix=192, width=128, rows=3, outputs=24)
    model = registry.abstract(config)
    prefix = jnp.zeros((2, config.num_kv_heads, packed.prefix, config.head_size))
    tokens, outputs = jnp.zeros((packed.rows, packed.width), jnp.int32), jnp.zeros(packed.outputs, jnp.int32)

    def step(state, prefix, tokens, outputs):
        model_of_state = nnx.merge(nnx.graphdef(model), state)
        kv = attention.Prefix(prefix, prefix, jnp.int32(packed.prefix))
        packed_step = packing.Step(tokens, tokens, tokens, outputs)
        hidden, _ = model_of_state.read_suffixes(packed_step, prefix=kv, use_kernel=False)
        return model_of_state.head.logits(hidden)

    analysis = jax.jit(step).lower(nnx.state(model), prefix, tokens, outputs).cost_analysis()
    assert operations.packed_step(config, packed) == pytest.approx(analysis["flops"], rel=0.03)
