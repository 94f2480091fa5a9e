"""The training loop: AdamW, warm-up, constant rate, linear decay; checkpoints that a killed run continues from."""

import dataclasses
import json
import math
import pathlib
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import tqdm
from flax import nnx

from knnprompt_jax import errors
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import decoder, training
from knnprompt_jax.pretraining import text


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How to train. Lengths are in tokens, `batch` in sequences, rates per step."""

    steps: int
    batch: int = 8
    context: int = 1024
    learning_rate: float = 2e-3
    warmup: int = 100
    decay: float = 0.25
    weight_decay: float = 0.1
    clip: float = 1.0
    seed: int = 0
    remat: bool = False
    evaluate_every: int = 200
    checkpoint_every: int = 100


def schedule(config: TrainConfig) -> optax.Schedule:
    """Warm-up, constant, then linear decay to zero over the last `decay` share of the steps: a longer run postpones it."""
    decay_steps = max(1, round(config.steps * config.decay))
    parts = [
        optax.linear_schedule(0.0, config.learning_rate, config.warmup),
        optax.constant_schedule(config.learning_rate),
        optax.linear_schedule(config.learning_rate, 0.0, decay_steps),
    ]
    return optax.join_schedules(parts, [config.warmup, config.steps - decay_steps])


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
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

    def __init__(self, model_config: config_lib.DecoderConfig, config: TrainConfig, folder: pathlib.Path):
        self.config, self.model_config = config, model_config
        self._graph, self.params = nnx.split(decoder.Decoder(model_config, nnx.Rngs(config.seed)))
        self._optimizer = make_optimizer(config)
        self._optimizer_state = self._optimizer.init(self.params)
        self._manager = ocp.CheckpointManager(
            folder.absolute() / "checkpoints", options=ocp.CheckpointManagerOptions(max_to_keep=2)
        )
        self.step = self._restore()
        self._update = jax.jit(self._make_update(), donate_argnums=(0, 1))
        self._losses = jax.jit(lambda params, tokens_BT: token_losses(nnx.merge(self._graph, params), tokens_BT))

    @property
    def model(self) -> decoder.Decoder:
        return nnx.merge(self._graph, self.params)

    def train(
        self, documents: Sequence[np.ndarray], held_out: Sequence[np.ndarray], log: Callable[[str], None] = print
    ) -> float:
        """Trains up to `config.steps` and returns the held-out loss in nats a token; writes a line of JSON a log entry to `log`."""
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
                    self._save()
        self._manager.wait_until_finished()
        return self.evaluate(held_out)

    def evaluate(self, held_out: Sequence[np.ndarray]) -> float:
        """Mean cross-entropy on held-out text, nats a token."""
        tokens = text.blocks(held_out, self.config.context, seed=0, epoch=0)
        tokens = tokens[: max(self.config.batch, len(tokens) // self.config.batch * self.config.batch)]
        return float(
            np.mean(
                [
                    self._losses(self.params, jnp.asarray(part))
                    for part in np.split(tokens, max(1, len(tokens) // self.config.batch))
                ]
            )
        )

    def _make_update(self) -> Callable:
        def update(
            params: nnx.State, optimizer_state: optax.OptState, tokens_BT: jax.Array
        ) -> tuple[nnx.State, optax.OptState, jax.Array]:
            def mean_loss(params: nnx.State) -> jax.Array:
                return token_losses(nnx.merge(self._graph, params), tokens_BT, self.config.remat).mean()

            loss, gradients = jax.value_and_grad(mean_loss)(params)
            updates, optimizer_state = self._optimizer.update(gradients, optimizer_state, params)
            return optax.apply_updates(params, updates), optimizer_state, loss

        return update

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

    def _state(self) -> dict:
        return {"params": nnx.to_pure_dict(self.params), "optimizer": jax.tree.leaves(self._optimizer_state)}

    def _save(self) -> None:
        self._manager.save(self.step, args=ocp.args.StandardSave(self._state()))

    def _restore(self) -> int:
        step = self._manager.latest_step()
        if step is None:
            return 0
        try:
            saved = self._manager.restore(step, args=ocp.args.StandardRestore(self._state()))
        except ValueError as error:
            raise errors.UserError(
                f"the checkpoint of step {step} is of another model: choose another output folder ({error})"
            ) from error
        nnx.replace_by_pure_dict(self.params, saved["params"])
        self._optimizer_state = jax.tree.unflatten(jax.tree.structure(self._optimizer_state), saved["optimizer"])
        return step
