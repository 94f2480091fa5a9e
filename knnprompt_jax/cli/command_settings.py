"""The options of the commands on own texts, of those on devices, and of fine_tune and report.

`paper_settings` has the options of compare and paper, which import all methods.
"""

import csv
import dataclasses
import os
import pathlib
from typing import Any

from knnprompt_jax.classifier import LARGEST_P, SMALLEST_P, PromiseOptions, check_unlabelled
from knnprompt_jax.classifier.experts import PoolOptions
from knnprompt_jax.cli import shared_settings as shared
from knnprompt_jax.cli.shared_settings import DistributedOptions
from knnprompt_jax.common import errors, options
from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.models import DTYPES, hub
from knnprompt_jax.tasks import catalogue

PRIOR_HELP = (
    "Share of each class among the texts to classify: uniform, estimate (from --unlabelled_file), or label=share for "
    "every label, such as yes=0.9,no=0.1; quote a label with a comma. By default the shares of the train rows."
)
SEED = 1
STANDARD = "-"  # Standard input or output.
INPUT_KINDS = ("csv", "tsv", "jsonl", "txt")
OUTPUT_KINDS = ("jsonl", "csv")
TABLE = "table.csv"
TEXT_HELP = "A JSON object of the fields if the classifier has several."
_BATCH = {"cb": 8, "agnews": 8, "rte": 8, "dbpedia": 4}
FINE_TUNING_METHODS = ("fine_tuning", "fine_tuning_bert", "fine_tuning_gpt2")
_WITH_TEXT = ("text", "classifier", "mesh", "output", "overwrite", "probabilities", "neighbours", "class_prior")


class PriorOptions(options.Options):
    """The shares of classes."""

    class_prior: str = options.option("", PRIOR_HELP, verbatim=True)

    @property
    def prior(self) -> Any:
        """The `class_prior` of a classifier; None if none is given.

        Raises:
            UserError: neither uniform nor a number for each label.
        """
        text = self.class_prior
        if "=" not in text:
            return text or None
        pairs = [cell.rpartition("=") for cell in next(csv.reader([text], skipinitialspace=True))]
        try:
            shares = {label.strip(): float(share) for label, _, share in pairs}
        except ValueError:
            shares = {}
        if len(shares) < len(pairs) or "" in shares:
            raise errors.UserError(f"class_prior={text}: give each label once, as in yes=0.9,no=0.1")
        return shares


class FitSettings(PriorOptions, PoolOptions, shared.PassOptions, shared.RowOptions, shared.NameOptions):
    """The rows, the model and the file of a classifier to fit."""

    FURTHER = (
        *("encoding", "delimiter", "drop_duplicates", "data_dir", "hub"),
        *("label_token", "cache_gb", "batch", "deterministic", "datastore", "mesh", "distributed"),
    )

    classifier: str = options.option("", "File of the classifier.", nonempty=True)
    train_file: str = options.option("", f"CSV, TSV, JSONL or Parquet file of texts and labels, or look's {TABLE}.")
    unlabelled_file: str = options.option("", "File of texts without labels, drawn at random like those to come.")
    task: str | None = options.option(None, f"{shared.TASK_HELP} By default {catalogue.OWN}.", nonempty=True)
    shots: int | None = options.option(None, "Train rows per class; by default all.", least=1)
    demo_shots: tuple[int, ...] | None = options.option(
        None,
        "Demonstrations per class. Several numbers, such as 0,4, read each row once per number. By default 0 and up to 16.",
        least=0,
        nonempty=True,
    )
    seed: int = options.option(SEED, "Seed for drawing rows.", least=0)
    drop_duplicates: bool = options.option(False, "Leave out train rows that repeat or contradict each other.")
    overwrite: bool = options.option(False, "Replace an earlier classifier in the file.")
    datastore: StoreOptions = options.group(StoreOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_unlabelled(bool(self.unlabelled_file), self.prior)
        self.check_rows(self.task or catalogue.OWN, bool(self.train_file), bool(self.unlabelled_file))


class PredictionSettings(
    PriorOptions, PromiseOptions, shared.ColumnOptions, shared.FileOptions, shared.CacheOptions, shared.SavedOptions
):
    """The rows to label, and the output."""

    FURTHER = ("encoding", "delimiter", "on_bad", "cache_gb", "mesh", "distributed")

    input: str = options.option("", "File of rows, or - for standard input.")
    output: str = options.option(STANDARD, "File to write, or - for standard output.", nonempty=True)
    text: str = options.option("", f"Label this text instead of a file. {TEXT_HELP}", verbatim=True)
    format: str | None = options.option(None, "Input format; by default the name's ending.", choices=INPUT_KINDS)
    probabilities: bool = options.option(False, "Write the probability of every class too.")
    neighbours: bool = options.option(False, "Write the nearest train rows with their distances too.")
    keep: tuple[str, ...] | None = options.option(None, "Columns to copy; by default named like ids.", verbatim=True)
    overwrite: bool = options.option(False, "Replace an existing output once the new one is complete.")
    distributed: DistributedOptions = options.group(DistributedOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.input) == bool(self.text):
            raise errors.UserError("--input, --text: give a file of rows or one text")
        if self.input == STANDARD and not self.format:
            raise errors.UserError(f"--input=-: choose its --format from {', '.join(INPUT_KINDS)}")
        if self.text:
            allowed = {*_WITH_TEXT, *vars(PromiseOptions())}
            self.refuse((name for name in vars(self) if name not in allowed), "with --text")
        for path in (self.input, self.classifier):
            if self.output != STANDARD and os.path.realpath(self.output) == os.path.realpath(path):
                raise errors.UserError(f"--output={self.output}: it is {path}, which would be lost")
        if self.kind not in OUTPUT_KINDS:
            raise errors.UserError(f"--output={self.output}: the name should end in .{' or .'.join(OUTPUT_KINDS)}")

    @property
    def kind(self) -> str:
        """The format of the output."""
        return "jsonl" if self.output == STANDARD else pathlib.Path(self.output).suffix[1:]


class EvaluationSettings(
    PriorOptions, shared.ColumnOptions, shared.LabelledFileOptions, shared.CacheOptions, shared.SavedOptions
):
    """The classifier, and the rows that it is measured on."""

    input: str = options.option("", "CSV, TSV, JSONL or Parquet file of rows with their labels.", nonempty=True)
    output: str = options.option("evaluation", "Folder of index.html, measures.json and mistakes.csv.", nonempty=True)
    out_of_scope: str = options.option("", "File of texts of no class, to measure how well novelty tells them.")
    reject_novel: float = options.option(
        0.02, "With --out_of_scope: the p-value up to which texts are rejected.", least=SMALLEST_P, most=LARGEST_P
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.out_of_scope:
            self.refuse(("reject_novel",), "without --out_of_scope")


class LookSettings(shared.ColumnOptions, shared.FileOptions, shared.CacheOptions, shared.SavedOptions):
    """The saved classifier, unlabelled rows, and the folder of the page."""

    output: str = options.option("look", f"Folder to write index.html and {TABLE} to.", nonempty=True)
    input: str = options.option("", f"File of unlabelled rows; the most useful ones are added to {TABLE}.")
    budget: int = options.option(50, "Rows to label, at most.", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.input:
            self.refuse(("budget", "text_columns", "encoding", "on_bad", "cache_gb"), "without --input")


class ExplanationSettings(shared.SavedOptions):
    """The classifier and the text."""

    text: str = options.option("", f"The text to explain. {TEXT_HELP}", nonempty=True, verbatim=True)
    tokens: int = options.option(0, "Tokens that add most to a KL divergence, printed below each neighbour.", least=0)


class CheckSettings(options.Options):
    """The checks to run."""

    model: str = options.option("tiny", f"The model to check: {shared.MODEL_HELP}", nonempty=True)
    quick: bool = options.option(False, "Check correctness only, in about 75 s of CPU time.")
    shapes: tuple[str, ...] | None = options.option(
        None, "Published models to measure, with random weights. By default gpt2; on accelerators, three larger ones."
    )
    output: str = options.option("checks", "Folder of the JSON file.", nonempty=True)
    distributed: shared.DistributedOptions = options.group(shared.DistributedOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quick:
            self.refuse(("shapes",), "with --quick")


class BenchmarkSettings(shared.DrawOptions, shared.RowOptions, shared.ModelOptions):
    """The model, the prompts, and what to measure or estimate."""

    FURTHER = ("encoding", "delimiter", "on_bad", "label_column", "text_columns", "hub")

    dry_run: bool = options.option(False, "Estimate memory, operations and a minimum time; load no weights.")
    topology: str | None = options.option(
        None, "Devices of a dry run, such as v5e:4x4, h100:8 or cpu:8; an unknown name lists all.", nonempty=True
    )
    model: str = options.option(
        "smollm2", "A model, or a published shape (gpt2-xl) with random weights.", nonempty=True
    )
    tokenizer: str = options.option("", "Folder of a tokenizer; empty: the model's own, otherwise smollm2's.")
    dtype: str = options.option("float32", "float32 is the reference, bfloat16 for accelerators.", choices=DTYPES)
    seed: int = options.option(1, "Seed of the draw of train rows.", least=0)
    shots: int = options.option(1024, "Train rows per class.", least=1)
    anchors: int = options.option(256, "Anchors to read, in a dry run any number; 0: all of the split.", least=0)
    queries: int = options.option(256, "Texts to classify in a dry run, as long as the anchors.", least=1)
    store: str = options.option("factored", "Kind of the datastore of a dry run.", choices=("dense", "factored"))
    output: str = options.option("benchmarks", "Folder of the JSON file.", nonempty=True)
    repetitions: int = options.option(3, "Timed passes.", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_rows(self.task, bool(self.train_file))
        if self.dry_run:
            self.refuse(("repetitions", "mesh"), "with --dry_run")
        else:
            self.refuse(("topology", "queries", "store"), "without --dry_run")


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


class FineTuneSettings(OptimizerOptions, shared.EvaluationOptions):
    """The model, the tasks and the draws of train rows. A finished run is skipped, a killed run resumes."""

    method: str = options.option("fine_tuning", "The method; presets the model.", choices=FINE_TUNING_METHODS)
    model: str | None = options.option(
        None,
        f"A BERT or a decoder by Hub name or folder. By default {hub.DEFAULT}, BERT-large or GPT-2 large, by the method.",
        nonempty=True,
    )
    tasks: tuple[str, ...] = options.option(("demo",), f"Comma-separated: {shared.TASK_HELP}", nonempty=True)
    train_file: str = options.option("", "File of train rows; needs eval_file and one task.")
    eval_file: str = options.option("", "File of rows to classify; needs train_file.")
    shots: tuple[int, ...] = options.option((shared.SHOTS,), "Train rows per class, m.", least=1, nonempty=True)
    seeds: tuple[int, ...] = options.option(shared.SEEDS, "Seeds of the draws of train rows.", least=0, nonempty=True)
    steps: int | None = options.option(None, "Optimizer steps; by default the paper's 125, 250 or 500.", least=1)
    batch: int | None = options.option(None, "Rows per step; by default the paper's 4, 8 or 16.", least=1)
    experiment: str | None = options.option(
        None, "A table or figure of the paper; names the folder of records.", choices=("low_resource", "fine_tuning")
    )
    output: str = options.option("results", "Folder of the JSON records.", nonempty=True)
    checkpoints: str = options.option("checkpoints", "Folder of checkpoints to resume from.", nonempty=True)
    checkpoint_every: int = options.option(100, "Steps between checkpoints.", least=1)
    distributed: DistributedOptions = options.group(DistributedOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_files(self.train_file, self.eval_file)
        if self.train_file and len(self.tasks) > 1:
            raise errors.UserError(f"--tasks={','.join(self.tasks)}: name one task for --train_file")
        for task in self.tasks:
            self.check_rows(task, bool(self.train_file))

    def hyperparameters(self, task_name: str, shots: int) -> Hyperparameters:
        """Return the hyper-parameters for a task and a number of shots, by default the paper's steps and batch."""
        steps = 125 if shots <= 64 else 250 if shots <= 256 else 500
        return Hyperparameters(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(OptimizerOptions)},
            steps=self.steps or steps,
            batch=self.batch or _BATCH.get(task_name, 16),
        )


class ReportSettings(options.Options):
    """The records to report and the form of the report."""

    records: str = options.option("results", "Folder of records, or packed file (*.jsonl.gz).", nonempty=True)
    output: str = options.option("report", "Folder of index.html and tables/, with --format=html.", nonempty=True)
    format: str = options.option("html", "A page, or tables on the terminal.", choices=("html", "text"))
