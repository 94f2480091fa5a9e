"""Fine-tuning, the supervised baseline: a BERT or GPT-2 with a classification head, trained on the split's train rows.

BERT: Devlin, Chang, Lee, Toutanova, NAACL 2019; GPT-2: Radford et al., 2019. Hyper-parameters are the paper's and, where
it is silent, those of PET (Schick, Schütze, EACL 2021). The prompt's template and label words are not used.
"""

import functools
import hashlib
import pathlib

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P

from knnprompt_jax.methods import method
from knnprompt_jax.methods.fine_tuning import classifier, texts, trainer
from knnprompt_jax.methods.fine_tuning import settings as settings_lib
from knnprompt_jax.models import checkpoints as weights
from knnprompt_jax.models import identity, registry, tokenizers


def prepare(problem: method.Problem, settings: settings_lib.Settings) -> None:
    """Raises UserError where the model is none or cannot be had."""
    if settings.model:
        registry.describe(settings.model, families=tuple(registry.FAMILIES))


def run(context: method.Context, settings: settings_lib.Settings) -> method.Prediction:
    """Fine-tunes on demonstrations and anchors and predicts."""
    problem, seed, name = context.problem, context.seed, settings.model or context.model.name
    config = settings.with_published(problem.task.name, problem.split.shots)
    shape, folder = registry.describe(name, families=tuple(registry.FAMILIES))
    tokenizer, mesh = tokenizers.load(folder, of_prompts=False), trainer.make_mesh(config.batch)
    backbone = weights.load(folder, shape, jnp.float32, lambda path: jax.NamedSharding(mesh, P()))
    network = classifier.SequenceClassifier(backbone, context.num_classes, nnx.Rngs(seed))
    length = min(config.max_length, shape.num_positions)
    train_rows, queries = (
        texts.encode(problem.task, examples, tokenizer, length, network.is_bidirectional)
        for examples in (problem.train_rows, problem.evaluation)
    )
    y = context.classes(problem.train_rows)
    described = {
        "task": problem.task.name,
        "model": identity.fingerprint(folder),
        "rows": hashlib.sha256(repr((train_rows, y.tolist())).encode()).hexdigest(),
    }
    kept = f"{problem.task.name}-{pathlib.PurePath(name).name}-m{problem.split.shots}-seed{seed}"
    checkpoints = pathlib.Path(settings.checkpoints) / kept if settings.checkpoints else None
    tuner = trainer.Trainer(network, config, mesh, seed)
    losses = tuner.train(train_rows, y, checkpoints, described)
    probabilities_QC = tuner.predict_proba(queries)
    note = f"{config.steps} steps of {config.batch} rows" + (f", last loss {losses[-1]:.3f}" if losses else "")
    trained = 3 * config.steps * config.batch * train_rows.lengths_N.mean()
    tokens = int(queries.lengths_N.sum() + trained)
    return method.Prediction(probabilities_QC.argmax(-1), probabilities_QC, note, prompts=len(queries), tokens=tokens)


def cost(problem: method.Problem, reader: method.Reader, settings: settings_lib.Settings) -> method.Cost:
    """Every query once, and the rows of all steps, a step costing about three forward passes."""
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
    _declare(
        "fine_tuning", "Fine-tuning, the run's model", "Radford et al., 2019", settings=settings_lib.Settings, look=2
    ),
    _declare(
        "fine_tuning_bert",
        "Fine-tuning, BERT-large",
        "Devlin et al., NAACL 2019",
        settings=method.with_defaults(settings_lib.Settings, model="google-bert/bert-large-uncased"),
        own_model=True,
        printed_as=("BERT Large FT",),
        look=3,
    ),
    _declare(
        "fine_tuning_gpt2",
        "Fine-tuning, GPT-2 large",
        "Radford et al., 2019",
        settings=method.with_defaults(settings_lib.Settings, model="openai-community/gpt2-large"),
        own_model=True,
        printed_as=("GPT Large FT",),
        look=4,
    ),
)
