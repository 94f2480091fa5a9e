"""The procedures with our model that share no prefix: the published one, and whole prompts in batches.

Prompts are padded to a multiple of 64 tokens, since each length is another compilation.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax.benchmark import peers, timing
from knnprompt_jax.benchmark import settings as settings_lib
from knnprompt_jax.models import decoder
from knnprompt_jax.prompts import packing, padding

Array = jax.Array
_PAD_TO = 64


def turns(
    model: decoder.Decoder, sampled: peers.Sample, settings: settings_lib.BenchmarkSettings
) -> dict[str, timing.Turn]:
    """Those that the settings ask for."""
    work = {
        "jax_one": lambda: one_at_a_time(model, sampled.prompts),
        "jax_batched": lambda: in_batches(model, sampled.prompts, settings.peer_batch),
    }
    return {name: timing.stopwatch(work[name]) for name in work if name in settings.peers}


def one_at_a_time(model: decoder.Decoder, prompts: Sequence[np.ndarray]) -> list[Array]:
    """The log-probabilities [V] after each prompt, by logits of all its tokens, one after the other as published."""
    done = []
    for tokens in prompts:
        logits_TV = _all_logits(model, _padded([tokens])[0])[0]
        done.append(jax.block_until_ready(jax.nn.log_softmax(logits_TV[len(tokens) - 1])))
    return done


def in_batches(model: decoder.Decoder, prompts: Sequence[np.ndarray], size: int) -> list[Array]:
    """The log-probabilities [size, V] after each batch's prompts, by the head at their last tokens."""
    batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
    return [_last_log_probabilities(model, *_padded(batch)) for batch in batches]


def _padded(prompts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [B, T] and lengths [B]."""
    return padding.pad(
        [tokens.tolist() for tokens in prompts], len(prompts), packing.round_up(max(map(len, prompts)), _PAD_TO)
    )


@jax.jit
def _all_logits(model: decoder.Decoder, tokens_BT: Array) -> Array:
    with jax.default_matmul_precision("highest"):
        return model.logits(model(tokens_BT))


@jax.jit
def _last_log_probabilities(model: decoder.Decoder, tokens_BT: Array, lengths_B: Array) -> Array:
    with jax.default_matmul_precision("highest"):
        hidden_BE = jnp.take_along_axis(model(tokens_BT), lengths_B[:, None, None] - 1, 1)[:, 0]
        return jax.nn.log_softmax(model.logits(hidden_BE))
