"""The options of `fine_tune`, and the methods that it runs."""

import dataclasses

from knnprompt_jax.cli import shared_settings as shared
from knnprompt_jax.cli.shared_settings import DistributedOptions
from knnprompt_jax.common import errors, files, options
from knnprompt_jax.models import DTYPES, shipped
from knnprompt_jax.tasks import catalogue

_BATCH = {"cb": 8, "agnews": 8, "rte": 8, "dbpedia": 4}

METHODS = ("fine_tuning", "fine_tuning_bert", "fine_tuning_gpt2")


class OptimizerOptions(options.Options):
    """The optimizer and the inputs of fine-tuning. Weights stay float32."""

    learning_rate: float = options.option(1e-5, "Learning rate of the first step; it falls linearly to 0.", least=1e-12)
    weight_decay: float = options.option(0.01, "AdamW's weight decay; biases and normalisation have none.", least=0)
    clip: float = options.option(1.0, "Maximum norm of the gradient.", least=1e-12)
    dropout: float = options.option(0.1, "Share of activations to drop.", least=0, most=0.99)
    max_length: int = options.option(256, "Maximum tokens of a text; further tokens are dropped.", least=1)
    dtype: str = options.option("float32", "Dtype of activations.", choices=DTYPES)
    remat: bool = options.option(False, "Recompute activations in the backward pass, to save memory.")


class Hyperparameters(OptimizerOptions):
    """All that the result of training depends on, besides the model, the rows and the seed."""

    steps: int = options.option(125, "Optimizer steps.", least=1)
    batch: int = options.option(16, "Rows per step.", least=1)


def published_steps(shots: int) -> int:
    """Return the paper's number of optimizer steps, of its next larger number of shots."""
    if shots <= 64:
        return 125
    return 250 if shots <= 256 else 500


def published_batch(task_name: str) -> int:
    """Return the paper's number of rows per step."""
    return _BATCH.get(task_name, 16)


class FineTuneSettings(OptimizerOptions, shared.EvaluationOptions):
    """The model, the tasks and the draws of train rows. A finished run is skipped, a killed run resumes."""

    method: str = options.option(
        "fine_tuning", "The method in records and tables, which presets the model.", choices=METHODS
    )
    model: str | None = options.option(
        None,
        f"A BERT or a decoder by Hub name or folder. By default {shipped.DEFAULT}, BERT-large or GPT-2 large, by the method.",
        nonempty=True,
        check=shipped.check_name,
    )
    tasks: tuple[str, ...] = options.option(
        ("demo",), f"Comma-separated: {shared.TASK_HELP}", nonempty=True, check=shared.check_task
    )
    train_file: str = options.option(
        "", "File of train rows; needs eval_file and one task.", check=files.check_readable
    )
    eval_file: str = options.option("", "File of rows to classify; needs train_file.", check=files.check_readable)
    shots: tuple[int, ...] = options.option((shared.SHOTS,), "Train rows per class, m.", least=1, nonempty=True)
    seeds: tuple[int, ...] = options.option(shared.SEEDS, "Seeds of the draws of train rows.", least=0, nonempty=True)
    steps: int | None = options.option(
        None, "Optimizer steps; by default the paper's: 125 for m ≤ 64, 250 for m ≤ 256, otherwise 500.", least=1
    )
    batch: int | None = options.option(
        None, "Rows per step; by default the paper's: 16, but 8 for CB, AGNews and RTE, and 4 for DBPedia.", least=1
    )
    experiment: str | None = options.option(
        None,
        "A table or figure of the paper; the records go to a folder of this name in the output folder.",
        choices=("low_resource", "fine_tuning"),
    )
    output: str = options.option(
        "results", "Folder of the JSON records.", nonempty=True, check=files.check_output_folder
    )
    checkpoints: str = options.option(
        "checkpoints", "Folder of the checkpoints of unfinished runs, from which training resumes.", nonempty=True
    )
    checkpoint_every: int = options.option(100, "Steps between checkpoints.", least=1)
    distributed: DistributedOptions = options.group(DistributedOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.train_file) != bool(self.eval_file):
            raise errors.UserError("--train_file and --eval_file go together: give both files or neither")
        if self.train_file and len(self.tasks) > 1:
            raise errors.UserError(f"--tasks={','.join(self.tasks)}: name one task for --train_file")
        for task in self.tasks:
            if task != catalogue.OWN:
                catalogue.get(task)
            self.check_rows(task, bool(self.train_file))
        if self.eval_file:
            self.refuse(("split",), "with --eval_file")

    def hyperparameters(self, task_name: str, shots: int) -> Hyperparameters:
        """Return the hyper-parameters for a task and a number of shots."""
        return Hyperparameters(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(OptimizerOptions)},
            steps=self.steps or published_steps(shots),
            batch=self.batch or published_batch(task_name),
        )
