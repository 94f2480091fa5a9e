"""The training loop: AdamW, warm-up, constant rate, linear decay; checkpoints that a killed run continues from."""

import functools
import json
import math
import pathlib
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np
import optax
from flax import nnx

from knnprompt_jax.models import decoder, training
from knnprompt_jax.pretraining import settings, text


def schedule(config: settings.PretrainSettings) -> optax.Schedule:
    """Warm-up, constant, then linear decay to zero over the last `decay` share of the steps: a longer run postpones it."""
    decay_steps = max(1, round(config.steps * config.decay))
    parts = [
        optax.linear_schedule(0.0, config.learning_rate, config.warmup),
        optax.constant_schedule(config.learning_rate),
        optax.linear_schedule(config.learning_rate, 0.0, decay_steps),
    ]
    return optax.join_schedules(parts, [config.warmup, config.steps - decay_steps])


def make_optimizer(config: settings.PretrainSettings) -> optax.GradientTransformation:
    """AdamW with clipped gradients."""
    adamw = optax.adamw(schedule(config), b1=0.9, b2=0.95, weight_decay=config.weight_decay, mask=training.decays)
    return optax.chain(optax.clip_by_global_norm(config.clip), adamw)


def token_losses(model: decoder.Decoder, tokens_BT: jax.Array, remat: bool = False) -> jax.Array:
    """Mean cross-entropy in nats of each sequence [B]; the vocabulary's logits exist for one sequence at a time."""
    hidden_BTE = model(tokens_BT[:, :-1], remat=remat)

    @jax.checkpoint
    def loss(hidden_and_targets: tuple[jax.Array, jax.Array]) -> jax.Array:
        hidden_TE, target_T = hidden_and_targets
        return optax.softmax_cross_entropy_with_integer_labels(model.logits(hidden_TE), target_T).mean()

    return jax.lax.map(loss, (hidden_BTE, tokens_BT[:, 1:]))


def train(
    config: settings.PretrainSettings,
    folder: pathlib.Path,
    documents: Sequence[np.ndarray],
    held_out: Sequence[np.ndarray],
    log: Callable[[str], None],
) -> decoder.Decoder:
    """A decoder trained on documents, from the folder's newest checkpoint if there is one; `log` takes each line of JSON.

    Raises UserError where the folder has the checkpoints of a model of another size.
    """
    graph, params = nnx.split(decoder.Decoder(config.model_config, nnx.Rngs(config.seed)))
    optimizer = make_optimizer(config)
    run = training.Training(params, optimizer.init(params), training.Checkpoints(folder, config.sizes))
    batches = text.batches(documents, config.batch, config.context, config.seed, run.step)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def descend(params: nnx.State, state: optax.OptState, tokens_BT: jax.Array) -> training.Updated:
        def mean_loss(params: nnx.State) -> jax.Array:
            return token_losses(nnx.merge(graph, params), tokens_BT, config.remat).mean()

        loss, gradients = jax.value_and_grad(mean_loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    def update(step: int, params: nnx.State, state: optax.OptState) -> training.Updated:
        return descend(params, state, next(batches))

    started, first, recent = time.monotonic(), run.step, []
    for loss in run.steps(update, config.steps, config.checkpoint_every, config.learning_rate):
        recent.append(loss)
        if run.step % config.evaluate_every == 0 or run.step == config.steps:
            held_out_loss = evaluate(nnx.merge(graph, run.params), held_out, config)
            tokens_per_step, elapsed = config.batch * config.context, time.monotonic() - started
            line = {
                "step": run.step,
                "tokens": run.step * tokens_per_step,
                "loss": round(float(np.mean(recent)), 4),
                "held_out_loss": round(held_out_loss, 4),
                "held_out_perplexity": round(math.exp(held_out_loss), 2),
                "tokens_per_second": round((run.step - first) * tokens_per_step / elapsed),
            }
            log(json.dumps(line))
            recent = []
    return nnx.merge(graph, run.params)


def evaluate(model: decoder.Decoder, held_out: Sequence[np.ndarray], config: settings.PretrainSettings) -> float:
    """Mean cross-entropy on held-out text, in nats per token."""
    tokens = text.blocks(held_out, config.context, seed=0, epoch=0)
    count = max(1, len(tokens) // config.batch)
    parts = np.split(tokens[: max(config.batch, count * config.batch)], count)
    return float(np.mean([_losses(model, part) for part in parts]))


_losses = jax.jit(token_losses)
