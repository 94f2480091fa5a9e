"""Train a classifier by AdamW with linear decay over seeded epochs, with rows split over the devices."""

import functools
import math
import pathlib
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P

from knnprompt_jax import parallel
from knnprompt_jax.fine_tuning import classifier, texts, training
from knnprompt_jax.models import encoders, layers
from knnprompt_jax.settings.fine_tuning import Hyperparameters

Array = jax.Array


def make_mesh(batch: int) -> jax.sharding.Mesh:
    """Return a mesh of as many devices along `data` as divide a batch."""
    return parallel.make_mesh(math.gcd(batch, jax.device_count()), 1)


def make_optimizer(hyperparameters: Hyperparameters) -> optax.GradientTransformation:
    """Return AdamW with clipped gradients and a learning rate that falls linearly to zero, without warm-up."""
    rate = optax.linear_schedule(hyperparameters.learning_rate, 0.0, hyperparameters.steps)
    adamw = optax.adamw(rate, weight_decay=hyperparameters.weight_decay, mask=training.decays)
    return optax.chain(optax.clip_by_global_norm(hyperparameters.clip), adamw)


def batch_rows(num_rows: int, batch: int, step: int, seed: int) -> np.ndarray:
    """Return the rows of a step's batch: shuffled epochs, joined and cut into batches."""
    rows = []
    for position in range(step * batch, (step + 1) * batch):
        epoch, index = divmod(position, num_rows)
        rows.append(_order(num_rows, seed, epoch)[index])
    return np.array(rows)


@functools.lru_cache(maxsize=8)
def _order(num_rows: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order of the rows in an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(num_rows)


class Trainer:
    """Trains a classifier that is replicated over the mesh; the seed sets the order of rows and the dropout."""

    def __init__(
        self,
        model: classifier.SequenceClassifier,
        hyperparameters: Hyperparameters,
        mesh: jax.sharding.Mesh,
        seed: int = 0,
    ):
        self.hyperparameters = hyperparameters
        self.mesh = mesh
        self.seed = seed
        self.num_classes = model.head_kernel.shape[-1]
        self._graph, params = nnx.split(model)
        self._params = jax.device_put(params, jax.NamedSharding(mesh, P()))

    def train(
        self,
        rows: texts.Texts,
        y: np.ndarray,
        folder: pathlib.Path | None = None,
        checkpoint_every: int = 100,
        content: Mapping[str, str] | None = None,
    ) -> list[float]:
        """Train on rows of classes `y` [N] and return the loss (nats) of each step of this call.

        Args:
            rows: the N texts.
            y: their class indices.
            folder: where checkpoints are saved; training resumes from a checkpoint of the same run.
            checkpoint_every: steps between checkpoints.
            content: a description of model and rows, which a checkpoint must match.

        Raises:
            UserError: the loss is not finite.
        """
        init = jax.jit(make_optimizer(self.hyperparameters).init, out_shardings=jax.NamedSharding(self.mesh, P()))
        described = {**self.hyperparameters.to_dict(), "seed": self.seed, **(content or {})}
        run = training.Training(self._params, init(self._params), folder, described)
        key = jax.random.key(self.seed)

        def update(step: int, params: nnx.State, state: optax.OptState) -> training.Updated:
            indices = batch_rows(len(rows), self.hyperparameters.batch, step, self.seed)
            inputs = rows.batch(indices, len(indices), rows.width(indices))
            batch = self._put(*inputs, y[indices].astype(np.int32))
            return _update(self._graph, self.hyperparameters, params, state, jax.random.fold_in(key, step), *batch)

        hyperparameters = self.hyperparameters
        losses = list(run.steps(update, hyperparameters.steps, checkpoint_every, hyperparameters.learning_rate))
        self._params = run.params
        return losses

    def predict_proba(self, rows: texts.Texts) -> np.ndarray:
        """Return class probabilities [Q, C] of rows."""
        probabilities_QC = np.zeros((len(rows), self.num_classes), np.float32)
        for indices, size, width in encoders.batches(rows.lengths_N, self.hyperparameters.batch, rows.width()):
            batch = self._put(*rows.batch(indices, size, width))
            probabilities_BC = parallel.replicate(
                _probabilities(self._graph, self.hyperparameters, self._params, *batch)
            )
            probabilities_QC[indices] = probabilities_BC[: len(indices)]
        return probabilities_QC

    def _put(self, *arrays: np.ndarray) -> list[Array]:
        return [parallel.put(array, self.mesh, P(parallel.DATA)) for array in arrays]


def _logits(
    graph: nnx.GraphDef, hyperparameters: Hyperparameters, params: nnx.State, *batch: Array, dropout: layers.Dropout
) -> Array:
    """Cast the weights to the activations' dtype here, so that gradients and updates stay float32."""
    dtype = jnp.dtype(hyperparameters.dtype)
    model = nnx.merge(graph, jax.tree.map(lambda leaf: leaf.astype(dtype), params))
    return model(*batch, dropout=dropout, remat=hyperparameters.remat)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _probabilities(graph: nnx.GraphDef, hyperparameters: Hyperparameters, params: nnx.State, *batch: Array) -> Array:
    return jax.nn.softmax(_logits(graph, hyperparameters, params, *batch, dropout=layers.NO_DROPOUT))


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def _update(
    graph: nnx.GraphDef,
    hyperparameters: Hyperparameters,
    params: nnx.State,
    state: optax.OptState,
    key: Array,
    *batch: Array,
) -> training.Updated:
    """Take a step on a batch, whose last array holds the classes."""
    *inputs, y_B = batch

    def mean_loss(params: nnx.State) -> Array:
        dropout = layers.Dropout(key, hyperparameters.dropout)
        logits_BC = _logits(graph, hyperparameters, params, *inputs, dropout=dropout)
        return optax.softmax_cross_entropy_with_integer_labels(logits_BC, y_B).mean()

    loss, gradients = jax.value_and_grad(mean_loss)(params)
    updates, state = make_optimizer(hyperparameters).update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss
