"""The options of compare and paper: those of every grid of runs, and those of single tables and figures.

`configs/` has the values that repeat the paper's runs, in a file per table or figure.
"""

import re
import runpy

from knnprompt_jax.cli import console
from knnprompt_jax.cli import shared_settings as shared
from knnprompt_jax.common import errors, options
from knnprompt_jax.datastore import StoreOptions
from knnprompt_jax.datastore.distances import DIRECTIONS
from knnprompt_jax.methods import all_methods
from knnprompt_jax.models import hub
from knnprompt_jax.tasks import catalogue

_FEW_SHOT = "few-shot"
METHODS_HELP = "Comma-separated names (docs/methods.md), or all: those that apply, except those marked 'by name' there."


def parse_shard(shard: str) -> tuple[int, int]:
    """Return i - 1 and n of i/n; raise UserError unless i is from 1 to n."""
    numbers = re.fullmatch(r"(\d+)/(\d+)", shard)
    if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]):
        raise errors.UserError(f"--shard={shard}: write it as i/n with i from 1 to n, as in 3/8")
    return int(numbers[1]) - 1, int(numbers[2])


class SharedSettings(shared.PassOptions, shared.EvaluationOptions, all_methods.MethodOptions):
    """The options of every job that runs methods on tasks."""

    FURTHER = (
        *(name for name in all_methods.MethodOptions.groups() if name != "knn"),
        *("distributed", "datastore.memory_mb", "knn.centroid"),
        "delimiter",
    )

    context: int = options.option(0, "Maximum tokens of a prompt; 0: as many as the model reads.", least=0)
    output: str = options.option("results", "Folder of the JSON records.", nonempty=True)
    datastore: StoreOptions = options.group(StoreOptions)


class ComparisonSettings(shared.DrawOptions, SharedSettings):
    """The rows and seeds to compare methods on."""

    eval_file: str = options.option("", "File of rows to classify; needs train_file.")
    methods: tuple[str, ...] = options.option(("icl", "knn"), METHODS_HELP, nonempty=True)
    seeds: tuple[int, ...] | None = options.option(
        None, f"Seeds of the draws; by default {','.join(map(str, shared.SEEDS))}.", least=0, nonempty=True
    )
    resume: bool = options.option(False, "Skip runs whose records are in the output folder.")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_files(self.train_file, self.eval_file)
        self.check_rows(self.task, bool(self.train_file))


class GridSettings(SharedSettings):
    """The runs of a table or figure, and how they are made."""

    experiment: str = options.option("", "Table or figure, and the folder of its records.", nonempty=True)
    tasks: tuple[str, ...] = options.option(catalogue.PAPER_TASKS, "Comma-separated names.", nonempty=True)
    models: tuple[str, ...] = options.option(
        ("gpt2-xl",), "Hub names, folders, .gguf files, smollm2, tiny.", nonempty=True
    )
    methods: tuple[str, ...] = options.option(("icl", "knn"), "Comma-separated names.", nonempty=True)
    shots: tuple[int, ...] = options.option((32,), "Train rows per class, m.", least=1)
    seeds: tuple[int, ...] = options.option(shared.SEEDS, "Seeds of the draws of train rows.", least=0, nonempty=True)
    regime: str = options.option(
        "full", "Demonstrations. full: M_T; few-shot: 1, or m without anchors.", choices=("full", _FEW_SHOT)
    )
    direction: str = options.option(
        "reverse_kl",
        "KL divergences of all methods. reverse_kl: KL(anchor ‖ test), as in the released code; kl: Eq. 5.",
        choices=DIRECTIONS,
    )
    rows: int = options.option(0, "Classify only the first rows of the split; 0: all.", least=0)
    dry_run: bool = options.option(False, "Print what is missing, and run nothing.")
    shard: str = options.option("1/1", "The part of the passes to run: 3/8 is the third of eight.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("tasks", "models", "methods"):
            object.__setattr__(self, option, tuple(dict.fromkeys(getattr(self, option))))
        for method in self.methods:
            all_methods.get(method)
        for task in self.tasks:
            catalogue.get(task)
        for model in self.models:
            hub.check_name(model)
        parse_shard(self.shard)
        self.check_rows(self.tasks[0])

    @property
    def regime_shots(self) -> list[tuple[str, int]]:
        """Each regime with each of its numbers of shots."""
        return [(self.regime, shots) for shots in self.shots]


class ScalingSettings(GridSettings):
    """Options of a grid in both regimes."""

    few_shots: tuple[int, ...] = options.option((), "Further numbers m, run in the few-shot regime.", least=1)

    @property
    def regime_shots(self) -> list[tuple[str, int]]:
        return [*super().regime_shots, *((_FEW_SHOT, shots) for shots in self.few_shots)]


class CountSettings(GridSettings):
    """Options of the counts."""

    contexts: tuple[int, ...] = options.option((1024, 2048), "Context lengths in tokens.", least=1, nonempty=True)
    tokenizer: str = options.option("", "A folder with a tokenizer. Default: the tokenizer of the first model.")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse(("rows", "shard", "context"), "on counts")


class SplitSettings(GridSettings):
    """Options of a grid of split sizes; m is the sum of both sizes."""

    shots: tuple[int, ...] = options.option((), "Not an option here: m is |D| + |A|.", least=1)
    demo_shots: tuple[int, ...] = options.option((1,), "|D|, demonstrations per class.", least=1)
    anchor_shots: tuple[int, ...] = options.option((1,), "|A|, anchors per class.", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse(("shots", "regime"), "on a grid of split sizes")


class ImbalanceSettings(ScalingSettings):
    """Options of a grid of skewed draws."""

    shares: tuple[float, ...] = options.option((0.5,), "Shares of the rare class.", least=0.001, most=0.5)


class PriorSettings(GridSettings):
    """Options of a grid of skewed train and test rows."""

    prior_settings: tuple[str, ...] = options.option(
        ("A", "B", "C"), "A: rare in train; B: rare in test; C: both.", choices=("A", "B", "C")
    )
    shares: tuple[float, ...] = options.option((0.5,), "Shares of the positive class.", least=0.001, most=0.5)


def shipped(experiment: str) -> GridSettings:
    """Return the settings of `configs/<experiment>.py`, which repeat the paper's runs."""
    return runpy.run_path(str(console.locate(f"configs/{experiment}.py")))["get_config"]()
