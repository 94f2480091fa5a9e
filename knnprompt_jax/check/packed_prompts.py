"""Packed prompts against one prompt at a time, without a prefix; also prompts that lost their beginning."""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from scipy import special

from knnprompt_jax import lm, rounding
from knnprompt_jax.check import findings
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.prompts import layout

_ROWS = range(0, 90, 9)


def run(inputs: inputs_lib.Inputs) -> Iterator[findings.Finding]:
    """Compare some prompts, whole and with a context that cuts half of them."""
    model = inputs.tested
    whole = inputs.prompts(model, _ROWS)
    lengths = [len(tokens) for tokens in token_lists(whole)]
    cut = inputs.prompts(model, _ROWS, context=int(np.median(lengths)))
    assert 0 < cut.num_truncated < cut.num_prompts
    for prompts, kind in ((whole, "packed prompts"), (cut, f"prompts of which {cut.num_truncated} are truncated")):
        yield findings.compare(
            f"{kind} against one at a time, nats",
            functools.partial(_deviation, model, prompts, max(lengths)),
            inputs_lib.NATS,
            inputs_lib.NATS_REASON,
        )


def _deviation(model: lm.LanguageModel, prompts: layout.Prompts, longest: int) -> float:
    packed_NV = inputs_lib.log_probabilities(model, prompts)
    return inputs_lib.largest(packed_NV - one_at_a_time(model, prompts, longest))


def token_lists(prompts: layout.Prompts) -> list[np.ndarray]:
    """Return the tokens of each prompt."""
    tokens = {}
    for group in prompts.groups:
        for index, suffix in zip(group.number_N, group.suffixes, strict=True):
            tokens[int(index)] = np.concatenate([group.prefix_P, suffix])
    return [tokens[index] for index in range(prompts.num_prompts)]


def one_at_a_time(model: lm.LanguageModel, prompts: layout.Prompts, longest: int) -> np.ndarray:
    """Return log p [N, V] after each prompt, which passes through the decoder alone, by causal attention."""
    graph, params = nnx.split(model.execution.decoder)
    width = rounding.round_up(longest, 64)  # One compilation; later tokens change nothing.

    @jax.jit
    def read(params: nnx.State, tokens_1T: jax.Array, last: jax.Array) -> jax.Array:
        decoder = nnx.merge(graph, params)
        return decoder.head.logits(decoder(tokens_1T)[0, last])

    rows = []
    with jax.default_matmul_precision("highest"):
        for tokens in token_lists(prompts):
            padded = np.pad(tokens, (0, width - len(tokens))).astype(np.int32)
            rows.append(np.asarray(read(params, padded[None], jnp.int32(len(tokens) - 1)), np.float64))
    return special.log_softmax(np.stack(rows), axis=-1)


CHECKS = (findings.Check("packing", run),)
