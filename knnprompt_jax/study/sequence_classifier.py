"""A BERT or a decoder with a classification head, its inputs and its training.

Inputs are the texts of examples as tokens, without the prompt's template and label words. Training is AdamW with linear
decay over seeded epochs, with rows split over the devices.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import tqdm
from flax import nnx
from jax.sharding import PartitionSpec as P

from knnprompt_jax.cli.command_settings import Hyperparameters
from knnprompt_jax.common import errors, files, parallel
from knnprompt_jax.models import encoders, layers, registry
from knnprompt_jax.models.families import bert
from knnprompt_jax.tasks.task import Example, Task

Array = jax.Array
# Widths are multiples of it, so that a few compiled programs serve all batches.
_MULTIPLE = 32
# Parameters and optimizer state after a step, and the loss before it.
Updated = tuple[nnx.State, optax.OptState, jax.Array]
# Takes the number of a step, counted from 0, the parameters and the optimizer state.
Update = Callable[[int, nnx.State, optax.OptState], Updated]


@dataclasses.dataclass(frozen=True)
class Texts:
    """The tokens of N examples, and each token's text index (0 or 1) within a pair.

    Every example has at least one token.
    """

    tokens: tuple[list[int], ...]
    types: tuple[list[int], ...]
    max_length: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths_N(self) -> np.ndarray:
        return np.array([len(tokens) for tokens in self.tokens])

    def width(self, rows: np.ndarray | slice = slice(None)) -> int:
        """Return the length of the longest of some rows, rounded up, but at most `max_length`; by default of all."""
        return min(self.max_length, parallel.round_up(int(self.lengths_N[rows].max()), _MULTIPLE))

    def batch(self, rows: Sequence[int] | np.ndarray, size: int, width: int) -> tuple[np.ndarray, ...]:
        """Return the tokens and token types [size, width] and the lengths [size] of some rows.

        Rows are padded on the right; extra rows fill the batch.
        """
        tokens_BT, lengths_B = encoders.pad([self.tokens[row] for row in rows], size, width)
        types_BT, _ = encoders.pad([self.types[row] for row in rows], size, width)
        return tokens_BT, types_BT, lengths_B


def encode(task: Task, examples: Sequence[Example], tokenizer: Any, max_length: int, as_pairs: bool) -> Texts:
    """Tokenize the bare texts, without template or label, and keep the first `max_length` tokens.

    With `as_pairs` (BERT), the two fields of a task are two texts with a separator between them, and the longer text is
    truncated first. Otherwise, or if the task does not have two fields, an example is its retrieval text. An empty text
    becomes the end-of-text token, because decoders classify the state of the last token.

    Raises:
        UserError: `max_length` tokens hold only the special tokens.
    """
    if as_pairs and len(task.fields) == 2:
        columns = [[example.fields[field] for example in examples] for field in task.fields]
    else:
        columns = [[task.retrieval_text(example) for example in examples]]
    special = tokenizer.num_special_tokens_to_add(pair=len(columns) == 2)
    if max_length <= special:
        raise errors.UserError(f"{max_length=}: texts of so few tokens hold only the {special} special tokens")
    encoded = tokenizer(*columns, truncation=True, max_length=max_length, padding=False, return_token_type_ids=as_pairs)
    tokens = [ids or [tokenizer.eos_token_id or 0] for ids in encoded["input_ids"]]
    types = encoded["token_type_ids"] if as_pairs else [[0] * len(ids) for ids in tokens]
    return Texts(tuple(tokens), tuple(types), max_length)


def decays(params: nnx.State) -> nnx.State:
    """Return which weights have weight decay: all but biases and the scales of normalisation."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: not any(name in jax.tree_util.keystr(path) for name in ("bias", "scale")), params
    )


class Training:
    """The parameters and optimizer state of a training run, from its newest checkpoint if there is one."""

    def __init__(self, params: nnx.State, state: optax.OptState, folder: pathlib.Path | None = None):
        """Restore the checkpoint if there is one.

        Args:
            params: the parameters before the first step.
            state: the optimizer state before the first step.
            folder: the folder of this run's checkpoint; None saves none.
        """
        self.step = 0
        self.params = params
        self._state = state
        self._manager: ocp.CheckpointManager | None = None
        if not folder:
            return
        options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(folder.absolute(), options=options)
        step = self._manager.latest_step()
        if step is not None:
            try:
                found = self._manager.restore(step, args=ocp.args.StandardRestore((params, state)))
            except Exception as error:  # Orbax raises nothing narrower for damaged files.
                message = errors.one_line(error)
                raise errors.UserError(f"{folder}: damaged checkpoint ({message}); remove it to begin anew") from None
            self.step = step
            self.params, self._state = found

    def steps(self, update: Update, total: int, checkpoint_every: int) -> Iterator[float]:
        """Update until step `total`, yield the loss of each step, and save the last step.

        Raises UserError if a loss is not finite.
        """
        with tqdm.tqdm(total=total, initial=self.step, unit="step", disable=None) as bar:
            while self.step < total:
                self.params, self._state, loss_before = update(self.step, self.params, self._state)
                self.step += 1
                loss = float(loss_before)
                if not math.isfinite(loss):
                    raise errors.UserError(f"the loss is {loss} at step {self.step}: lower --learning_rate")
                bar.update()
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
                yield loss
                if self.step % checkpoint_every == 0 or self.step == total:
                    self._save()

    def _save(self) -> None:
        """Replace the checkpoint, if there is a folder for it."""
        if self._manager:
            with files.refusals(self._manager.directory):
                self._manager.save(self.step, args=ocp.args.StandardSave((self.params, self._state)))


class SequenceClassifier(nnx.Module):
    """A BERT or a decoder with a classification head, as in `transformers`' models for sequence classification.

    BERT: a dense layer with a bias on the pooled first token. Decoders: a dense layer without a bias on the state of
    the last token before the padding. Padding is on the right, where causal attention hides it.
    """

    def __init__(self, backbone: registry.Model, num_classes: int, rngs: nnx.Rngs):
        self.backbone = backbone
        self.head_kernel = layers.normal_param(rngs, (backbone.config.embed_width, num_classes), jnp.float32)
        if self.is_bidirectional:
            self.head_bias = layers.zero_param((num_classes,), jnp.float32)

    @property
    def is_bidirectional(self) -> bool:
        return isinstance(self.backbone, bert.Encoder)

    def __call__(
        self,
        tokens_BT: Array,
        types_BT: Array,
        lengths_B: Array,
        dropout: layers.Dropout = layers.NO_DROPOUT,
        remat: bool = False,
    ) -> Array:
        """Return class logits [B, C] of right-padded sequences, float32."""
        if self.is_bidirectional:
            hidden_BTD = self.backbone(tokens_BT, lengths_B, types_BT, remat, dropout)
            pooled_BD = dropout.at(self.backbone.config.num_layers + 1)(self.backbone.pool(hidden_BTD))
            return pooled_BD @ self.head_kernel[...] + self.head_bias[...]
        hidden_BTE = self.backbone(tokens_BT, lengths_B, remat, dropout)
        last_BE = jnp.take_along_axis(hidden_BTE, lengths_B[:, None, None] - 1, axis=1)[:, 0]
        return last_BE[:, : self.backbone.config.embed_width] @ self.head_kernel[...]  # Phi appends 1 for its bias.


def make_mesh(batch: int) -> jax.sharding.Mesh:
    """Return a mesh of as many devices along `data` as divide a batch."""
    return parallel.make_mesh(math.gcd(batch, jax.device_count()), 1)


def make_optimizer(hyperparameters: Hyperparameters) -> optax.GradientTransformation:
    """Return AdamW with clipped gradients and a learning rate that falls linearly to zero, without warm-up."""
    rate = optax.linear_schedule(hyperparameters.learning_rate, 0.0, hyperparameters.steps)
    adamw = optax.adamw(rate, weight_decay=hyperparameters.weight_decay, mask=decays)
    return optax.chain(optax.clip_by_global_norm(hyperparameters.clip), adamw)


def batch_rows(num_rows: int, batch: int, step: int, seed: int) -> np.ndarray:
    """Return the rows of a step's batch: shuffled epochs, joined and cut into batches."""
    positions = [divmod(position, num_rows) for position in range(step * batch, (step + 1) * batch)]
    return np.array([_order(num_rows, seed, epoch)[index] for epoch, index in positions])


@functools.lru_cache(maxsize=8)
def _order(num_rows: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order of the rows in an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(num_rows)


class Trainer:
    """Trains a classifier that is replicated over the mesh; the seed sets the order of rows and the dropout."""

    def __init__(
        self, model: SequenceClassifier, hyperparameters: Hyperparameters, mesh: jax.sharding.Mesh, seed: int = 0
    ):
        self.hyperparameters = hyperparameters
        self.mesh = mesh
        self.seed = seed
        self.num_classes = model.head_kernel.shape[-1]
        self._graph, params = nnx.split(model)
        self._params = jax.device_put(params, jax.NamedSharding(mesh, P()))

    def train(
        self, rows: Texts, y: np.ndarray, folder: pathlib.Path | None = None, checkpoint_every: int = 100
    ) -> list[float]:
        """Train on rows of classes `y` [N] and return the loss (nats) of each step of this call.

        Args:
            rows: the N texts.
            y: their class indices.
            folder: the folder of this run's checkpoint, from which training resumes.
            checkpoint_every: steps between checkpoints.

        Raises:
            UserError: the loss is not finite.
        """
        init = jax.jit(make_optimizer(self.hyperparameters).init, out_shardings=jax.NamedSharding(self.mesh, P()))
        run = Training(self._params, init(self._params), folder)
        key = jax.random.key(self.seed)

        def update(step: int, params: nnx.State, state: optax.OptState) -> Updated:
            indices = batch_rows(len(rows), self.hyperparameters.batch, step, self.seed)
            inputs = rows.batch(indices, len(indices), rows.width(indices))
            batch = self._put(*inputs, y[indices].astype(np.int32))
            return _update(self._graph, self.hyperparameters, params, state, jax.random.fold_in(key, step), *batch)

        losses = list(run.steps(update, self.hyperparameters.steps, checkpoint_every))
        self._params = run.params
        return losses

    def predict_proba(self, rows: Texts) -> np.ndarray:
        """Return class probabilities [Q, C] of rows."""
        probabilities_QC = np.zeros((len(rows), self.num_classes), np.float32)
        for indices, size, width in encoders.batches(rows.lengths_N, self.hyperparameters.batch, rows.width()):
            batch = self._put(*rows.batch(indices, size, width))
            p_BC = parallel.replicate(_probabilities(self._graph, self.hyperparameters, self._params, *batch))
            probabilities_QC[indices] = p_BC[: len(indices)]
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
) -> Updated:
    """Take a step on a batch, whose last array holds the classes."""
    *inputs, y_B = batch

    def mean_loss(params: nnx.State) -> Array:
        dropout = layers.Dropout(key, hyperparameters.dropout)
        logits_BC = _logits(graph, hyperparameters, params, *inputs, dropout=dropout)
        return optax.softmax_cross_entropy_with_integer_labels(logits_BC, y_B).mean()

    loss, gradients = jax.value_and_grad(mean_loss)(params)
    updates, state = make_optimizer(hyperparameters).update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss
