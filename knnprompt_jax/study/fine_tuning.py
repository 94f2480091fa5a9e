"""Run fine-tuning on tasks and splits and write the same records as `compare` and `paper`."""

import dataclasses
import functools
import itertools
import pathlib
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import PartitionSpec as P

from knnprompt_jax.cli.command_settings import FineTuneSettings, Hyperparameters
from knnprompt_jax.common import files, parallel
from knnprompt_jax.inference.prompts import word_tokenizer
from knnprompt_jax.methods import method
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.models import hub, registry, tokenizers
from knnprompt_jax.report import records
from knnprompt_jax.report.results import OWN_MODELS
from knnprompt_jax.study import job_inputs, sequence_classifier
from knnprompt_jax.tasks import splits


class Backbone(NamedTuple):
    """A BERT or a decoder without its weights; `fingerprint` is the SHA-256 of its files."""

    name: str
    short_name: str
    fingerprint: str
    config: config_lib.DecoderConfig
    path: pathlib.Path
    tokenizer: Any


def describe(name: str) -> Backbone:
    """Return the model of a name or folder; raise UserError if it does not exist or is not supported."""
    config, path = registry.describe(name, families=tuple(registry.FAMILIES))
    tokenizer = tokenizers.load(path, for_prompts=False, vocab_size=config.vocab_size)
    return Backbone(name, hub.base_name(name), registry.fingerprint(path), config, path, tokenizer)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningRun(records.Run):
    """Fine-tuning on a split."""

    model: Backbone
    hyperparameters: Hyperparameters

    @functools.cached_property
    def identity(self) -> Mapping[str, Any]:
        """Everything that can change the outcome, as JSON values, with rows and weights by content."""
        return {
            **super().identity,
            "model": self.model.fingerprint,
            "runs": "fine_tuning",
            "options": self.hyperparameters.to_dict(),
            # Rounding, which training amplifies, depends on the platform.
            **({} if parallel.platform() == "cpu" else {"platform": parallel.platform()}),
        }


def run(settings: FineTuneSettings) -> list[records.Record]:
    """Train and evaluate on every split and write each record as soon as it is finished.

    Runs whose records are in the output folder are skipped. A killed run resumes from its last checkpoint.

    Raises:
        UserError: anything that cannot work, before training where possible.
    """
    parallel.start(**settings.distributed.to_dict())
    folder = pathlib.Path(settings.output)
    for path in (folder, pathlib.Path(settings.checkpoints)):
        parallel.call_in_main(functools.partial(files.check_writable, path, folder=True))
    runs = list(plan(settings))
    done = records.finished(folder, runs)
    for planned in runs:
        if planned.file_name not in done:
            done[planned.file_name] = _run(planned, settings)
            write = functools.partial(records.write, folder / planned.experiment, done[planned.file_name])
            parallel.call_in_main(write)
            parallel.call_in_main(functools.partial(shutil.rmtree, _checkpoints(settings, planned), ignore_errors=True))
    parallel.wait_for_all("records")
    return [done[planned.file_name] for planned in runs]


def plan(settings: FineTuneSettings) -> Iterator[FineTuningRun]:
    """Yield the runs of the settings; raise UserError if rows or model cannot be read or drawn."""
    model = describe(settings.model or OWN_MODELS.get(settings.method) or hub.DEFAULT)
    tokenize = word_tokenizer.WordTokenizer(model.tokenizer)
    for name in dict.fromkeys(settings.tasks):
        rows = job_inputs.load_rows(settings, name, settings.train_file, settings.eval_file)
        for shots, seed in dict.fromkeys(itertools.product(settings.shots, settings.seeds)):
            split = splits.draw(rows.train, rows.task, shots=shots, demo_shots=0, seed=seed)
            job_inputs.log_warnings(split.warnings)
            yield FineTuningRun(
                name=settings.method,
                model=model,
                problem=method.Problem(rows.task, split, rows.evaluation, tokenize),
                hyperparameters=settings.hyperparameters(rows.task.name, shots),
                source=job_inputs.row_options(settings),
                experiment=settings.experiment or "",
            )


def _checkpoints(settings: FineTuneSettings, planned: FineTuningRun) -> pathlib.Path:
    """Return the folder of a run's checkpoints."""
    return pathlib.Path(settings.checkpoints) / planned.file_name.removesuffix(".json")


def _run(planned: FineTuningRun, settings: FineTuneSettings) -> records.Record:
    """Train on a split and classify its evaluation rows."""
    started = time.monotonic()
    problem = planned.problem
    task = problem.task
    hyperparameters = planned.hyperparameters
    mesh = sequence_classifier.make_mesh(hyperparameters.batch)
    replicated = jax.NamedSharding(mesh, P())
    backbone = registry.load(planned.model.path, planned.model.config, jnp.float32, lambda path: replicated)
    network = sequence_classifier.SequenceClassifier(backbone, task.num_classes, nnx.Rngs(problem.split.seed))
    length = min(hyperparameters.max_length, planned.model.config.num_positions)
    encoding = (planned.model.tokenizer, length, network.is_bidirectional)
    train_rows = sequence_classifier.encode(task, problem.train_rows, *encoding)
    queries = sequence_classifier.encode(task, problem.evaluation, *encoding)
    y = np.array([task.class_index(example.label) for example in problem.train_rows])
    tuner = sequence_classifier.Trainer(network, hyperparameters, mesh, problem.split.seed)
    losses = tuner.train(train_rows, y, _checkpoints(settings, planned), settings.checkpoint_every)
    predicted = tuple(task.labels[index] for index in tuner.predict_proba(queries).argmax(-1))
    note = f"{hyperparameters.steps} steps of {hyperparameters.batch} rows"
    if losses:
        note += f", last loss {losses[-1]:.3f}"
    # The backward pass costs about two forward passes.
    trained = 3 * hyperparameters.steps * hyperparameters.batch * train_rows.lengths_N.mean()
    return records.Record.of(
        planned,
        predicted,
        prompts=len(queries),
        seconds={"language_model": 0.0, "method": round(time.monotonic() - started, 3)},
        lm_tokens=int(queries.lengths_N.sum() + trained),
        note=note,
    )
