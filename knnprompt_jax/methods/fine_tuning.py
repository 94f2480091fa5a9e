"""Fine-tuning, the supervised baseline: a BERT or GPT-2 with a classification head, trained on the split's train rows.

BERT: Devlin, Chang, Lee, Toutanova, NAACL 2019; GPT-2: Radford et al., 2019. All weights are trained. The prompt's template and label words
are not used.
"""

import functools
import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P

from knnprompt_jax.methods import method, trainer
from knnprompt_jax.models import checkpoints as weights
from knnprompt_jax.models import identity, registry, tokenizers
from knnprompt_jax.tasks.task import Example, Task


def encode(task: Task, examples: Sequence[Example], tokenizer: Any, max_length: int, as_pairs: bool) -> trainer.Texts:
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
    return trainer.Texts(tuple(tokens), tuple(types), max_length)


def prepare(problem: method.Problem, settings: trainer.Settings) -> None:
    """Raise UserError if the model does not exist or cannot be loaded."""
    if settings.model:
        registry.describe(settings.model, families=tuple(registry.FAMILIES))


def run(context: method.Context, settings: trainer.Settings) -> method.Prediction:
    """Fine-tune on demonstrations and anchors and predict the queries."""
    problem, seed, name = context.problem, context.seed, settings.model or context.model.name
    config = settings.with_published(problem.task.name, problem.split.shots)
    shape, folder = registry.describe(name, families=tuple(registry.FAMILIES))
    tokenizer, mesh = tokenizers.load(folder, of_prompts=False), trainer.make_mesh(config.batch)
    backbone = weights.load(folder, shape, jnp.float32, lambda path: jax.NamedSharding(mesh, P()))
    network = trainer.SequenceClassifier(backbone, context.num_classes, nnx.Rngs(seed))
    length = min(config.max_length, shape.num_positions)
    train_rows, queries = (
        encode(problem.task, examples, tokenizer, length, network.is_bidirectional)
        for examples in (problem.train_rows, problem.evaluation)
    )
    y = context.classes(problem.train_rows)
    described = {
        "task": problem.task.name,
        "model": identity.fingerprint(folder),
        "rows": hashlib.sha256(repr((train_rows, y.tolist())).encode()).hexdigest(),
    }
    subfolder = f"{problem.task.name}-{pathlib.PurePath(name).name}-m{problem.split.shots}-seed{seed}"
    checkpoints = pathlib.Path(settings.checkpoints) / subfolder if settings.checkpoints else None
    tuner = trainer.Trainer(network, config, mesh, seed)
    losses = tuner.train(train_rows, y, checkpoints, described)
    note = f"{config.steps} steps of {config.batch} rows" + (f", last loss {losses[-1]:.3f}" if losses else "")
    trained = 3 * config.steps * config.batch * train_rows.lengths_N.mean()
    tokens = int(queries.lengths_N.sum() + trained)
    return method.Prediction.most_probable(tuner.predict_proba(queries), note, prompts=len(queries), tokens=tokens)


def cost(problem: method.Problem, reader: method.Reader, settings: trainer.Settings) -> method.Cost:
    """Estimate the cost of every query once and of the rows of all steps; a step costs about three forward passes."""
    config = settings.with_published(problem.task.name, problem.split.shots)
    num_queries, tokens = len(problem.evaluation), reader.query_tokens(problem.task, problem.evaluation)
    return method.Cost(num_queries, tokens + 3 * config.steps * config.batch * tokens // num_queries)


_declare = functools.partial(
    method.Method,
    run=run,
    prepare=prepare,
    cost=cost,
    by_name="it trains a model for each split: name the method to run it",
    sees="train",
)
METHODS = (
    _declare("fine_tuning", "Fine-tuning, the run's model", settings=trainer.Settings),
    _declare(
        "fine_tuning_bert",
        "Fine-tuning, BERT-large",
        settings=method.with_defaults(trainer.Settings, model="google-bert/bert-large-uncased"),
        own_model=True,
        printed_as=("BERT Large FT",),
    ),
    _declare(
        "fine_tuning_gpt2",
        "Fine-tuning, GPT-2 large",
        settings=method.with_defaults(trainer.Settings, model="openai-community/gpt2-large"),
        own_model=True,
        printed_as=("GPT Large FT",),
    ),
)
