"""Fine-tuning: AdamW with linear decay, over seeded epochs, rows split over the devices; a killed run goes on where it stopped."""

import functools
import math
import pathlib
from collections.abc import Mapping

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P

from knnprompt_jax import parallel
from knnprompt_jax.methods.fine_tuning import classifier, texts
from knnprompt_jax.methods.fine_tuning import settings as settings_lib
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import dropout as dropout_lib
from knnprompt_jax.models import training
from knnprompt_jax.prompts import padding

Array = jax.Array


def make_mesh(batch: int) -> jax.sharding.Mesh:
    """As many devices along `data` as divide a batch."""
    return parallel.make_mesh(math.gcd(batch, jax.device_count()), 1)


def make_optimizer(config: settings_lib.Settings) -> optax.GradientTransformation:
    """AdamW with clipped gradients; the rate falls linearly to zero, without warm-up."""
    rate = optax.linear_schedule(config.learning_rate, 0.0, config.steps)
    adamw = optax.adamw(rate, weight_decay=config.weight_decay, mask=training.decays)
    return optax.chain(optax.clip_by_global_norm(config.clip), adamw)


def batch_rows(num_rows: int, batch: int, step: int, seed: int) -> np.ndarray:
    """Which rows are in the batch of a step: epochs, each in another order, joined and cut into batches."""
    places = step * batch + np.arange(batch)
    return np.array([_order(num_rows, seed, place // num_rows)[place % num_rows] for place in places.tolist()])


@functools.lru_cache(maxsize=8)
def _order(num_rows: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(num_rows)


class Trainer:
    """Trains a classifier that lies whole on every device of the mesh; the seed is that of rows' order and dropout."""

    def __init__(
        self,
        model: classifier.SequenceClassifier,
        config: settings_lib.Settings,
        mesh: jax.sharding.Mesh,
        seed: int = 0,
    ):
        self.config, self.mesh, self.seed = config, mesh, seed
        self.num_classes = model.head_kernel.shape[-1]
        self._graph, params = nnx.split(model)
        self._params = jax.device_put(params, jax.NamedSharding(mesh, P()))

    def train(
        self,
        rows: texts.Texts,
        y: np.ndarray,
        folder: pathlib.Path | None = None,
        data: Mapping[str, str] | None = None,
    ) -> list[float]:
        """Trains on rows of classes `y` [N] and returns the loss (nats) of each step done here.

        With a folder, it goes on from the checkpoint there and leaves later checkpoints; `data` says what is trained on what.

        Raises UserError where the folder holds another run, or the loss is not finite.
        """
        init = jax.jit(make_optimizer(self.config).init, out_shardings=jax.NamedSharding(self.mesh, P()))
        described = self.config.to_dict() | {"checkpoints": "", "seed": self.seed} | dict(data or {})
        checkpoints = training.Checkpoints(folder, described) if folder else None
        run, key = training.Training(self._params, init(self._params), checkpoints), jax.random.key(self.seed)

        def update(step: int, params: nnx.State, state: optax.OptState) -> training.Updated:
            chosen = batch_rows(len(rows), self.config.batch, step, self.seed)
            batch = self._put(*rows.batch(chosen, len(chosen), rows.width), y[chosen].astype(np.int32))
            return _update(self._graph, self.config, params, state, jax.random.fold_in(key, step), *batch)

        losses = [*run.steps(update, self.config.steps, self.config.checkpoint_every, self.config.learning_rate)]
        self._params = run.params
        return losses

    def predict_proba(self, rows: texts.Texts) -> np.ndarray:
        """Class probabilities [Q, C] of rows."""
        probabilities_QC = np.zeros((len(rows), self.num_classes), np.float32)
        for chosen, size, width in padding.batches(rows.lengths_N, self.config.batch, rows.width):
            batch = self._put(*rows.batch(chosen, size, width))
            probabilities_BC = parallel.replicate(_probabilities(self._graph, self.config, self._params, *batch))
            probabilities_QC[chosen] = probabilities_BC[: len(chosen)]
        return probabilities_QC

    def _put(self, *arrays: np.ndarray) -> list[Array]:
        return [parallel.put(array, self.mesh, P(parallel.DATA)) for array in arrays]


def _logits(
    graph: nnx.GraphDef, config: settings_lib.Settings, params: nnx.State, *batch: Array, dropout: dropout_lib.Dropout
) -> Array:
    """Weights are cast on the way in, so that gradients and updates stay float32."""
    dtype = config_lib.DTYPES[config.dtype]
    model = nnx.merge(graph, jax.tree.map(lambda leaf: leaf.astype(dtype), params))
    return model(*batch, dropout=dropout, remat=config.remat)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _probabilities(graph: nnx.GraphDef, config: settings_lib.Settings, params: nnx.State, *batch: Array) -> Array:
    return jax.nn.softmax(_logits(graph, config, params, *batch, dropout=dropout_lib.OFF))


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def _update(
    graph: nnx.GraphDef,
    config: settings_lib.Settings,
    params: nnx.State,
    state: optax.OptState,
    key: Array,
    *batch: Array,
) -> training.Updated:
    """A step on a batch, whose last array are the classes."""
    *inputs, y_B = batch

    def mean_loss(params: nnx.State) -> Array:
        dropout = dropout_lib.Dropout(key, config.dropout)
        logits_BC = _logits(graph, config, params, *inputs, dropout=dropout)
        return optax.softmax_cross_entropy_with_integer_labels(logits_BC, y_B).mean()

    loss, gradients = jax.value_and_grad(mean_loss)(params)
    updates, state = make_optimizer(config).update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss
