"""Implicit in-context learning (I2CL): demonstrations become vectors that are added inside the model, and prompts show none.

Li, Xu, Wang, Fu, Lu, Zhou: "Implicit In-context Learning", ICLR 2025 (arXiv 2405.14660), after its released code
(LzVv123456/I2CL, configs/config_i2cl.py). Each demonstration is read alone; what attention and MLP of each block put out at its last
token, averaged over demonstrations, are the vectors. In a query's pass each output becomes a · vector + b · output for all its tokens,
with a = 0.1 and b = 1 at first. These numbers, two for each part of each block, are fitted to the demonstrations' label words, read
without a context: AdamW, 100 epochs of batches of 2 drawn anew, a warm-up over a twentieth, then the released code's cosine, noise of a
thousandth.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from knnprompt_jax import options, parallel, progress
from knnprompt_jax.methods import method
from knnprompt_jax.models import decoder as decoder_lib
from knnprompt_jax.models import inside
from knnprompt_jax.prompts import packing, padding
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example

_BATCH, _WIDTH = 16, 64  # Of rows that are read together without training; their widths are multiples of this.
_START = (0.1, 1.0)


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of the vectors and of the fit of their strengths; the released code's."""

    rows: int = options.option(5, "Train rows per class that become vectors; DBPedia had 1.", least=1)
    epochs: int = options.option(100, "How often the rows are learned from.", least=1)
    batch: int = options.option(2, "Rows per step.", least=1)
    learning_rate: float = options.option(0.01, "Of AdamW, at most.", least=0)
    weight_decay: float = options.option(0.001, "Of AdamW.", least=0)
    noise: float = options.option(0.001, "In training, as a share of each output's norm.", least=0)


def chosen_rows(problem: method.Problem, settings: Settings) -> list[Example]:
    """The first train rows of each class, demonstrations before anchors."""
    by_class = splits.group_by_class(problem.train_rows)
    return [row for rows in by_class.values() for row in rows[: settings.rows]]


def mean_vectors(decoder: decoder_lib.Decoder, tokens: list[list[int]]) -> jax.Array:
    """What each part of each block puts out at the last token of each text, averaged over texts: [L, 2, D]."""
    sums = [
        _added(decoder, tokens_BT, last_B)[:, :, : len(chosen)].sum(2) for chosen, tokens_BT, last_B in _batches(tokens)
    ]
    return sum(sums[1:], sums[0]) / len(tokens)


def fit(
    decoder: decoder_lib.Decoder,
    vectors_LPD: jax.Array,
    tokens: list[list[int]],
    labels_N: np.ndarray,
    settings: Settings,
    seed: int,
) -> jax.Array:
    """The strengths [L, 2, 2] of vectors and outputs after all steps; `labels_N` is the token that is to follow each text."""
    batch = min(settings.batch, len(tokens))
    steps = settings.epochs * (len(tokens) // batch)
    generator, key = np.random.default_rng(seed), jax.random.key(seed)
    width = packing.round_up(max(map(len, tokens)), _WIDTH)
    tokens_NT, lengths_N = padding.pad(tokens, len(tokens), width)
    strengths = jnp.broadcast_to(jnp.array(_START), (*vectors_LPD.shape[:2], 2)).astype(jnp.float32)
    optimizer = optax.adamw(schedule(settings, steps), weight_decay=settings.weight_decay)
    state = optimizer.init(strengths)
    with progress.bar(steps, f"seed {seed}, strengths of context vectors", unit="step") as report:
        for step in range(steps):
            own = generator.permutation(len(tokens))[:batch]
            injection = inside.Injection(vectors_LPD, strengths, jax.random.fold_in(key, step), settings.noise)
            gradients = _gradients(decoder, injection, tokens_NT[own], lengths_N[own] - 1, labels_N[own])
            updates, state = optimizer.update(gradients, state, strengths)
            strengths = optax.apply_updates(strengths, updates)
            report(1, 0)
    return strengths


def schedule(settings: Settings, steps: int) -> optax.Schedule:
    """The released code's learning rate: a linear warm-up, and then a cosine over all steps that its own share of them scales too."""
    warm_up = int(0.05 * settings.epochs * (steps // settings.epochs))

    def rate(step: jax.Array) -> jax.Array:
        rising = step / max(1, warm_up)
        falling = jnp.minimum(1.0, rising) * (1 + jnp.cos(jnp.pi * step / steps)) / 2
        return settings.learning_rate * jnp.where(step > warm_up, falling, rising)

    return rate


def run(context: method.Context, settings: Settings) -> method.Prediction:
    """Makes the vectors, fits their strengths, and reads the queries without demonstrations."""
    problem, decoder = context.problem, context.model.execution.decoder
    rows, label_ids = chosen_rows(problem, settings), np.array(context.label_ids)
    shown = _tokenized(context, [problem.task.render(row, row.label).rstrip("\n") for row in rows])
    asked = _tokenized(context, [problem.task.render(row) for row in rows])
    queries = _tokenized(context, [problem.task.render(row) for row in problem.evaluation])
    vectors_LPD = mean_vectors(decoder, shown)
    strengths = fit(decoder, vectors_LPD, asked, label_ids[context.classes(rows)], settings, context.seed)
    injection, logits_QC = inside.Injection(vectors_LPD, strengths), np.zeros((len(queries), len(label_ids)))
    with progress.bar(len(queries), f"seed {context.seed}, context vectors") as report:
        for chosen, tokens_BT, last_B in _batches(queries):
            logits_BV = parallel.replicate(_logits(decoder, injection, tokens_BT, last_B))
            logits_QC[chosen] = np.asarray(logits_BV)[: len(chosen), label_ids]
            report(len(chosen), 0)
    probabilities_QC = np.asarray(jax.nn.softmax(logits_QC))
    told = f"vectors of {len(rows)} rows, read alone"
    tokens = sum(map(len, shown + queries)) + 3 * settings.epochs * sum(map(len, asked))
    prompts = len(rows) + len(queries)
    return method.Prediction(probabilities_QC.argmax(-1), probabilities_QC, told, prompts=prompts, tokens=tokens)


def cost(problem: method.Problem, reader: method.Reader, settings: Settings) -> method.Cost:
    """The rows once, all queries, and three times the rows of every training step: forward and backward."""
    rows = chosen_rows(problem, settings)
    shown, asked = reader.demonstration_tokens(problem.task, rows), reader.query_tokens(problem.task, rows)
    queries = reader.query_tokens(problem.task, problem.evaluation)
    return method.Cost(len(rows) + len(problem.evaluation), shown + queries + 3 * settings.epochs * asked)


def _tokenized(context: method.Context, texts: list[str]) -> list[list[int]]:
    """Of texts that are too long the last tokens that the model can read."""
    return [tokens[-context.model.context :] for tokens in context.problem.tokenize(texts)]


def _batches(tokens: list[list[int]]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Which texts are read together, their tokens [B, T], and where their last ones stand [B]."""
    lengths_N = np.array([len(each) for each in tokens])
    for chosen, size, width in padding.batches(lengths_N, _BATCH, packing.round_up(int(lengths_N.max()), _WIDTH)):
        tokens_BT, lengths_B = padding.pad([tokens[index] for index in chosen], size, width)
        yield chosen, tokens_BT, lengths_B - 1


@jax.jit
def _added(decoder: decoder_lib.Decoder, tokens_BT: jax.Array, last_B: jax.Array) -> jax.Array:
    outputs_LPBTD = inside.added(decoder, tokens_BT).astype(jnp.float32)
    return outputs_LPBTD[:, :, jnp.arange(len(last_B)), last_B]


@jax.jit
def _logits(
    decoder: decoder_lib.Decoder, injection: inside.Injection, tokens_BT: jax.Array, last_B: jax.Array
) -> jax.Array:
    inserted: Any = injection  # In the place of dropout.
    with jax.default_matmul_precision("highest"):
        h_BE = decoder(tokens_BT, dropout=inserted)[jnp.arange(len(last_B)), last_B]
        return decoder.head.logits(h_BE)


@jax.jit
def _gradients(
    decoder: decoder_lib.Decoder,
    injection: inside.Injection,
    tokens_BT: jax.Array,
    last_B: jax.Array,
    labels_B: jax.Array,
) -> jax.Array:
    """Of the mean cross-entropy of the labels' tokens among all tokens, by the strengths."""

    def loss(strengths: jax.Array) -> jax.Array:
        changed = injection.replace(strengths_LPs=strengths)  # type: ignore[attr-defined]
        logits_BV = _logits(decoder, changed, tokens_BT, last_B)
        return optax.softmax_cross_entropy_with_integer_labels(logits_BV, labels_B).mean()

    return jax.grad(loss)(injection.strengths_LPs)


METHODS = (
    method.Method(
        "i2cl",
        "I2CL, context vectors",
        "Li et al., ICLR 2025, released code",
        run,
        settings=Settings,
        check=method.label_words_differ,
        cost=cost,
        by_name="it trains on the model's gradients: name the method to run it",
        look=6,
    ),
)
