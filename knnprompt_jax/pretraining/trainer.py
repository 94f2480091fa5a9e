"""The training loop: AdamW, warm-up, constant rate, linear decay; checkpoints that a killed run continues from."""

import json
import math
import pathlib
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tqdm
from flax import nnx

from knnprompt_jax import errors
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
    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        optax.adamw(schedule(config), b1=0.9, b2=0.95, weight_decay=config.weight_decay, mask=training.decays),
    )


def token_losses(model: decoder.Decoder, tokens_BT: jax.Array, remat: bool = False) -> jax.Array:
    """Mean cross-entropy in nats of each sequence [B]; the vocabulary's logits exist for one sequence at a time."""
    hidden_BTE = model(tokens_BT[:, :-1], remat=remat)

    @jax.checkpoint
    def loss(hidden_and_targets: tuple[jax.Array, jax.Array]) -> jax.Array:
        hidden_TE, target_T = hidden_and_targets
        return optax.softmax_cross_entropy_with_integer_labels(model.logits(hidden_TE), target_T).mean()

    return jax.lax.map(loss, (hidden_BTE, tokens_BT[:, 1:]))


class Trainer:
    """Trains a decoder on documents, from `folder`'s newest checkpoint if there is one."""

    def __init__(self, config: settings.PretrainSettings, folder: pathlib.Path):
        """Raises UserError where the folder has the checkpoints of a model of another size."""
        self.config = config
        self._graph, params = nnx.split(decoder.Decoder(config.model_config, nnx.Rngs(config.seed)))
        self._optimizer = make_optimizer(config)
        self._checkpoints = training.Checkpoints(folder, config.sizes)
        self.step, self.params, self._optimizer_state = self._checkpoints.restore(params, self._optimizer.init(params))
        self._update = jax.jit(self._step, donate_argnums=(0, 1))
        self._losses = jax.jit(lambda params, tokens_BT: token_losses(nnx.merge(self._graph, params), tokens_BT))

    @property
    def model(self) -> decoder.Decoder:
        return nnx.merge(self._graph, self.params)

    def train(
        self, documents: Sequence[np.ndarray], held_out: Sequence[np.ndarray], log: Callable[[str], None] = print
    ) -> float:
        """Trains up to `config.steps` and returns the held-out loss in nats per token; `log` takes each line of JSON."""
        batches = text.Batches(documents, self.config.batch, self.config.context, self.config.seed)
        tokens_per_step = self.config.batch * self.config.context
        started, first, recent = time.monotonic(), self.step, []
        with tqdm.tqdm(total=self.config.steps, initial=self.step, unit="step", dynamic_ncols=True) as bar:
            while self.step < self.config.steps:
                self.params, self._optimizer_state, loss = self._update(
                    self.params, self._optimizer_state, jnp.asarray(batches[self.step])
                )
                self.step += 1
                recent.append(float(loss))
                if not math.isfinite(recent[-1]):
                    raise errors.UserError(
                        f"the loss is {recent[-1]} at step {self.step}: lower the learning rate ({self.config.learning_rate})"
                    )
                bar.update()
                bar.set_postfix(loss=f"{recent[-1]:.3f}")
                if self.step % self.config.evaluate_every == 0 or self.step == self.config.steps:
                    rate = (self.step - first) * tokens_per_step / (time.monotonic() - started)
                    log(self._report(recent, self.evaluate(held_out), rate))
                    recent = []
                if self.step % self.config.checkpoint_every == 0 or self.step == self.config.steps:
                    self._checkpoints.save(self.step, self.params, self._optimizer_state)
        return self.evaluate(held_out)

    def evaluate(self, held_out: Sequence[np.ndarray]) -> float:
        """Mean cross-entropy on held-out text, in nats per token."""
        tokens = text.blocks(held_out, self.config.context, seed=0, epoch=0)
        count = max(1, len(tokens) // self.config.batch)
        parts = np.split(tokens[: max(self.config.batch, count * self.config.batch)], count)
        return float(np.mean([self._losses(self.params, jnp.asarray(part)) for part in parts]))

    def _step(
        self, params: nnx.State, optimizer_state: optax.OptState, tokens_BT: jax.Array
    ) -> tuple[nnx.State, optax.OptState, jax.Array]:
        def mean_loss(params: nnx.State) -> jax.Array:
            return token_losses(nnx.merge(self._graph, params), tokens_BT, self.config.remat).mean()

        loss, gradients = jax.value_and_grad(mean_loss)(params)
        updates, optimizer_state = self._optimizer.update(gradients, optimizer_state, params)
        return optax.apply_updates(params, updates), optimizer_state, loss

    def _report(self, recent: Sequence[float], held_out: float, rate: float) -> str:
        return json.dumps(
            {
                "step": self.step,
                "tokens": self.step * self.config.batch * self.config.context,
                "loss": round(float(np.mean(recent)), 4),
                "held_out_loss": round(held_out, 4),
                "held_out_perplexity": round(math.exp(held_out), 2),
                "tokens_per_second": round(rate),
            }
        )
