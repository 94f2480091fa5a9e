"""Fine-tuning, the supervised baseline: a BERT or GPT-2 with a classification head, trained on the split's train rows.

BERT: Devlin, Chang, Lee, Toutanova, NAACL 2019; GPT-2: Radford et al., 2019. Hyper-parameters are the paper's and, where
it is silent, those of PET (Schick, Schütze, EACL 2021). The prompt's template and label words are not used.
"""

import hashlib
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P

from knnprompt_jax.methods import method
from knnprompt_jax.methods.fine_tuning import classifier, settings, texts, trainer
from knnprompt_jax.models import checkpoints as weights
from knnprompt_jax.models import registry, tokenizers


def configure(problem: method.Problem, **options: Any) -> settings.FineTuneConfig:
    """The config of a run: the published steps and batch where they are given as 0, and the split's seed.

    Raises:
        UserError: a value outside its choices.
    """
    given = {name: value for name, value in options.items() if value or name not in ("steps", "batch")}
    published = settings.published(problem.task.name, problem.split.shots)
    return settings.FineTuneConfig(**{**published, **given, "seed": problem.split.seed})


def prepare(problem: method.Problem, *, model: str, checkpoints: str, **options: Any) -> None:
    """Raises UserError on a value outside its choices, and where the model is none or cannot be had."""
    del checkpoints
    configure(problem, **options)
    if model:
        registry.describe(model, families=tuple(registry.FAMILIES))


def run(context: method.Context, *, model: str, checkpoints: str, **options: Any) -> method.Prediction:
    """Fine-tunes on demonstrations and anchors and predicts.

    Args:
      model: a Hub name or a folder; empty: the run's language model.
      checkpoints: folder from which an interrupted run of the same split goes on; empty: none.
      **options: of `FineTuneConfig`.
    """
    problem = context.problem
    config, name = configure(problem, **options), model or context.model.name
    shape, folder = registry.describe(name, families=tuple(registry.FAMILIES))
    tokenizer, mesh = tokenizers.load(folder, of_prompts=False), trainer.make_mesh(config.batch)
    backbone = weights.load(folder, shape, jnp.float32, lambda path: jax.NamedSharding(mesh, P()))
    network = classifier.SequenceClassifier(backbone, context.num_classes, nnx.Rngs(config.seed))
    pool = [*problem.split.demonstrations, *problem.split.anchors]
    length = min(config.max_length, shape.num_positions)
    train_rows, queries = (
        texts.encode(problem.task, examples, tokenizer, length, network.is_bidirectional)
        for examples in (pool, problem.evaluation)
    )
    y = context.classes(pool)
    described = {
        "task": problem.task.name,
        "model": weights.fingerprint(folder, shape),
        "rows": hashlib.sha256(repr((train_rows, y.tolist())).encode()).hexdigest(),
    }
    kept = f"{problem.task.name}-{pathlib.PurePath(name).name}-m{problem.split.shots}-seed{config.seed}"
    tuner = trainer.Trainer(network, config, mesh)
    losses = tuner.train(train_rows, y, pathlib.Path(checkpoints) / kept if checkpoints else None, described)
    probabilities_QC = tuner.predict_proba(queries)
    note = f"{config.steps} steps of {config.batch} rows" + (f", last loss {losses[-1]:.3f}" if losses else "")
    return method.Prediction(probabilities_QC.argmax(-1), probabilities_QC, note)


def _method(name: str, title: str, model: str) -> method.Method:
    options = {"model": model, "checkpoints": "", "steps": 0, "batch": 0}
    for field in ("learning_rate", "dropout", "max_length", "dtype", "remat", "checkpoint_every"):
        options[field] = getattr(settings.FineTuneConfig, field)
    by_name = "it trains a model for each split: name the method to run it"
    return method.Method(name, title, run, options=options, prepare=prepare, by_name=by_name)


METHODS = (
    _method("fine_tuning", "Fine-tuning, the run's model", ""),
    _method("fine_tuning_bert", "Fine-tuning, BERT-large", "google-bert/bert-large-uncased"),
    _method("fine_tuning_gpt2", "Fine-tuning, GPT-2 large", "openai-community/gpt2-large"),
)
