"""Fine-tuning, the supervised baseline: a BERT or GPT-2 with a classification head, trained on the split's train rows.

BERT: Devlin, Chang, Lee, Toutanova, NAACL 2019; GPT-2: Radford et al., 2019. All weights are trained, by AdamW with linear decay over
seeded epochs, rows split over the devices, resumable. The prompt's template and label words are not used. Hyper-parameters are the
paper's; where it gives none, those of PET (Schick, Schütze, EACL 2021).
"""

import dataclasses
import functools
import hashlib
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P

from knnprompt_jax import parallel, rounding
from knnprompt_jax.methods import method
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import layers, registry, tokenizers, training
from knnprompt_jax.models.families import bert
from knnprompt_jax.models.weights import checkpoints as weights
from knnprompt_jax.models.weights import tensor_files
from knnprompt_jax.prompts import packing
from knnprompt_jax.settings import methods
from knnprompt_jax.tasks.task import Example, Task

Array = jax.Array
_MULTIPLE = 32


@dataclasses.dataclass(frozen=True)
class Texts:
    """The tokens of N examples, at least one each, and the number (0 or 1) of the text in a pair that each token belongs to."""

    tokens: tuple[list[int], ...]
    types: tuple[list[int], ...]
    max_length: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths_N(self) -> np.ndarray:
        return np.array([len(tokens) for tokens in self.tokens])

    @property
    def width(self) -> int:
        """The length of the longest sequence, rounded up, but at most `max_length`."""
        return min(self.max_length, rounding.round_up(int(self.lengths_N.max()), _MULTIPLE))

    def batch(self, rows: Sequence[int] | np.ndarray, size: int, width: int) -> tuple[np.ndarray, ...]:
        """Return tokens and token types [size, width] and lengths [size] of some rows, padded on the right and with extra rows."""
        tokens_BT, lengths_B = packing.pad_sequences([self.tokens[row] for row in rows], size, width)
        types_BT, _ = packing.pad_sequences([self.types[row] for row in rows], size, width)
        return tokens_BT, types_BT, lengths_B


class SequenceClassifier(nnx.Module):
    """A BERT or a decoder with a classification head, as in `transformers`' models for sequence classification.

    BERT: dense layer with a bias on the pooled first token. Decoders: dense layer without a bias on the state of the last
    token before the padding; causal attention hides padding on the right.
    """

    def __init__(self, backbone: registry.Model, num_classes: int, rngs: nnx.Rngs):
        self.backbone = backbone
        self.head_kernel = layers.normal(rngs, (backbone.config.embed_width, num_classes), jnp.float32)
        if self.is_bidirectional:
            self.head_bias = layers.zeros((num_classes,), jnp.float32)

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
        hidden_BTE = self.backbone(tokens_BT, remat, dropout)
        last_BE = jnp.take_along_axis(hidden_BTE, lengths_B[:, None, None] - 1, axis=1)[:, 0]
        return last_BE[:, : self.backbone.config.embed_width] @ self.head_kernel[...]  # Phi appends 1 for its bias.


def make_mesh(batch: int) -> jax.sharding.Mesh:
    """Return a mesh of as many devices along `data` as divide a batch."""
    return parallel.make_mesh(math.gcd(batch, jax.device_count()), 1)


def make_optimizer(config: methods.FineTuningOptions) -> optax.GradientTransformation:
    """Return AdamW with clipped gradients and a learning rate that falls linearly to zero, without warm-up."""
    rate = optax.linear_schedule(config.learning_rate, 0.0, config.steps)
    adamw = optax.adamw(rate, weight_decay=config.weight_decay, mask=training.decays)
    return optax.chain(optax.clip_by_global_norm(config.clip), adamw)


def batch_rows(num_rows: int, batch: int, step: int, seed: int) -> np.ndarray:
    """Return the rows of a step's batch: shuffled epochs, joined and cut into batches."""
    places = step * batch + np.arange(batch)
    return np.array([_order(num_rows, seed, place // num_rows)[place % num_rows] for place in places.tolist()])


@functools.lru_cache(maxsize=8)
def _order(num_rows: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(num_rows)


class Trainer:
    """Trains a classifier that is replicated over the mesh; the seed sets the order of rows and the dropout."""

    def __init__(
        self, model: SequenceClassifier, config: methods.FineTuningOptions, mesh: jax.sharding.Mesh, seed: int = 0
    ):
        self.config, self.mesh, self.seed = config, mesh, seed
        self.num_classes = model.head_kernel.shape[-1]
        self._graph, params = nnx.split(model)
        self._params = jax.device_put(params, jax.NamedSharding(mesh, P()))

    def train(
        self, rows: Texts, y: np.ndarray, folder: pathlib.Path | None = None, data: Mapping[str, str] | None = None
    ) -> list[float]:
        """Train on rows of classes `y` [N] and return the loss (nats) of each step of this call.

        Args:
          folder: where checkpoints are saved; training resumes from the one of the same run.
          data: a description of model and rows, which a checkpoint must match.

        Raises:
          UserError: the loss is not finite.
        """
        init = jax.jit(make_optimizer(self.config).init, out_shardings=jax.NamedSharding(self.mesh, P()))
        described = self.config.to_dict() | {"checkpoints": "", "seed": self.seed} | dict(data or {})
        run = training.Training(self._params, init(self._params), folder, described)
        key = jax.random.key(self.seed)

        def update(step: int, params: nnx.State, state: optax.OptState) -> training.Updated:
            indices = batch_rows(len(rows), self.config.batch, step, self.seed)
            batch = self._put(*rows.batch(indices, len(indices), rows.width), y[indices].astype(np.int32))
            return _update(self._graph, self.config, params, state, jax.random.fold_in(key, step), *batch)

        losses = [*run.steps(update, self.config.steps, self.config.checkpoint_every, self.config.learning_rate)]
        self._params = run.params
        return losses

    def predict_proba(self, rows: Texts) -> np.ndarray:
        """Return class probabilities [Q, C] of rows."""
        probabilities_QC = np.zeros((len(rows), self.num_classes), np.float32)
        for indices, size, width in packing.batches(rows.lengths_N, self.config.batch, rows.width):
            batch = self._put(*rows.batch(indices, size, width))
            probabilities_BC = parallel.replicate(_probabilities(self._graph, self.config, self._params, *batch))
            probabilities_QC[indices] = probabilities_BC[: len(indices)]
        return probabilities_QC

    def _put(self, *arrays: np.ndarray) -> list[Array]:
        return [parallel.put(array, self.mesh, P(parallel.DATA)) for array in arrays]


def _logits(
    graph: nnx.GraphDef, config: methods.FineTuningOptions, params: nnx.State, *batch: Array, dropout: layers.Dropout
) -> Array:
    """Cast the weights to the activations' dtype here, so that gradients and updates stay float32."""
    dtype = config_lib.DTYPES[config.dtype]
    model = nnx.merge(graph, jax.tree.map(lambda leaf: leaf.astype(dtype), params))
    return model(*batch, dropout=dropout, remat=config.remat)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _probabilities(graph: nnx.GraphDef, config: methods.FineTuningOptions, params: nnx.State, *batch: Array) -> Array:
    return jax.nn.softmax(_logits(graph, config, params, *batch, dropout=layers.NO_DROPOUT))


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(2, 3))
def _update(
    graph: nnx.GraphDef,
    config: methods.FineTuningOptions,
    params: nnx.State,
    state: optax.OptState,
    key: Array,
    *batch: Array,
) -> training.Updated:
    """Take a step on a batch, whose last array holds the classes."""
    *inputs, y_B = batch

    def mean_loss(params: nnx.State) -> Array:
        dropout = layers.Dropout(key, config.dropout)
        logits_BC = _logits(graph, config, params, *inputs, dropout=dropout)
        return optax.softmax_cross_entropy_with_integer_labels(logits_BC, y_B).mean()

    loss, gradients = jax.value_and_grad(mean_loss)(params)
    updates, state = make_optimizer(config).update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


def encode(task: Task, examples: Sequence[Example], tokenizer: Any, max_length: int, as_pairs: bool) -> Texts:
    """Tokenize the bare texts, without template or label, and keep the first `max_length` tokens.

    With `as_pairs` (BERT), the two fields of a task are two texts with a separator between, and the longer is truncated first.
    Otherwise, and where a task has not two fields, an example is its retrieval text. An empty text becomes the end-of-text token, so that
    there is a last token to read.
    """
    if as_pairs and len(task.fields) == 2:
        columns = [[example.fields[field] for example in examples] for field in task.fields]
    else:
        columns = [[task.retrieval_text(example) for example in examples]]
    encoded = tokenizer(*columns, truncation=True, max_length=max_length, padding=False, return_token_type_ids=as_pairs)
    tokens = [ids or [tokenizer.eos_token_id or 0] for ids in encoded["input_ids"]]
    types = encoded["token_type_ids"] if as_pairs else [[0] * len(ids) for ids in tokens]
    return Texts(tuple(tokens), tuple(types), max_length)


def check_options(problem: method.Problem, settings: methods.FineTuningOptions) -> None:
    """Raise UserError if the model does not exist or cannot be loaded."""
    if settings.model:
        registry.describe(settings.model, families=tuple(registry.FAMILIES))


def run(context: method.Context, settings: methods.FineTuningOptions) -> method.Prediction:
    """Fine-tune on demonstrations and anchors and predict the queries."""
    problem, seed, name = context.problem, context.seed, settings.model or context.model.name
    config = settings.with_published(problem.task.name, problem.split.shots)
    shape, folder = registry.describe(name, families=tuple(registry.FAMILIES))
    tokenizer = tokenizers.load(folder, of_prompts=False, vocab_size=shape.vocab_size)
    mesh = make_mesh(config.batch)
    backbone = weights.load(folder, shape, jnp.float32, lambda path: jax.NamedSharding(mesh, P()))
    network = SequenceClassifier(backbone, context.num_classes, nnx.Rngs(seed))
    length = min(config.max_length, shape.num_positions)
    train_rows, queries = (
        encode(problem.task, examples, tokenizer, length, network.is_bidirectional)
        for examples in (problem.train_rows, problem.evaluation)
    )
    y = context.classes(problem.train_rows)
    described = {
        "task": problem.task.name,
        "model": tensor_files.fingerprint(folder),
        "rows": hashlib.sha256(repr((train_rows, y.tolist())).encode()).hexdigest(),
    }
    checkpoints = pathlib.Path(settings.checkpoints) if settings.checkpoints else None
    tuner = Trainer(network, config, mesh, seed)
    losses = tuner.train(train_rows, y, checkpoints, described)
    note = f"{config.steps} steps of {config.batch} rows" + (f", last loss {losses[-1]:.3f}" if losses else "")
    trained = 3 * config.steps * config.batch * train_rows.lengths_N.mean()
    tokens = int(queries.lengths_N.sum() + trained)
    p_QC = tuner.predict_proba(queries)
    return method.Prediction(p_QC.argmax(-1), p_QC, note, prompts=len(queries), tokens=tokens)


def cost(problem: method.Problem, counter: method.TokenCounter, settings: methods.FineTuningOptions) -> method.Cost:
    """Estimate the cost of every query once and of the rows of all steps; a step costs about three forward passes."""
    config = settings.with_published(problem.task.name, problem.split.shots)
    num_queries, tokens = len(problem.evaluation), counter.query_tokens(problem.task, problem.evaluation)
    return method.Cost(num_queries, tokens + 3 * config.steps * config.batch * tokens // num_queries)


METHODS = method.declare(
    "fine_tuning",
    run,
    check=check_options,
    cost=cost,
    rows_used="train",
    model_name=lambda settings: settings.model,
    neutral_options=("checkpoints", "checkpoint_every"),
)
