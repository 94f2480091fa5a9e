"""The options of paper and report: those that every grid of runs has, and the values of each of the paper's tables and figures."""

import re
from typing import Any

from knnprompt_jax import errors, options
from knnprompt_jax.settings import methods, shared
from knnprompt_jax.settings.stores import DIRECTIONS
from knnprompt_jax.tasks import catalogue

FULL, FEW_SHOT = REGIMES = ("full", "few-shot")  # |D| = M_T, or one demonstration per class.
SIX_TASKS = "sst2,subj,mpqa,cr,mr,trec"  # Those with M_T ≥ 8 in 1,024 tokens.
BINARY_TASKS = "sst2,subj,mpqa,cr,mr"
SIX_MODELS = "gpt2-large,gpt2-xl,facebook/opt-2.7b,facebook/opt-6.7b,facebook/opt-13b,facebook/opt-30b"
FEW_SHOTS = (2, 4, 8, 16, 32)
SHOTS = (32, 64, 128, 256, 512, 1024)
TEN_SEEDS = tuple(range(1, 11))


class GridSettings(shared.SharedSettings):
    """The runs of a table or figure, and how they are made.

    Raises:
      UserError: an unknown task or method, or a shard that does not exist.
    """

    experiment: str = options.option(
        "", "Table or figure; its records go to a folder of this name in the output folder.", needed=True
    )
    tasks: tuple[str, ...] = options.option(catalogue.PAPER_TASKS, "Comma-separated names.", needed=True)
    models: tuple[str, ...] = options.option(
        ("gpt2-xl",), "With commas: Hub names, folders, .gguf files, smollm2, tiny."
    )
    methods: tuple[str, ...] = options.option(("icl", "knn"), "Comma-separated names.")
    shots: tuple[int, ...] = options.option(SHOTS, "Train rows per class, m.", least=1)
    few_shots: tuple[int, ...] = options.option((), "Further numbers m, run in the few-shot regime.", least=1)
    seeds: tuple[int, ...] = options.option(shared.SEEDS, "Seeds of the draws of train rows.", least=0, needed=True)
    regime: str = options.option(
        FULL,
        "Demonstrations per class. full: M_T; few-shot: 1 for methods with anchors, m for all others.",
        choices=REGIMES,
    )
    direction: str = options.option(
        "reverse_kl",
        "The direction of KL divergences, whatever the methods' option distance says. reverse_kl: KL(anchor ‖ test), as in "
        "the released code; kl: Eq. 5.",
        choices=DIRECTIONS,
    )
    rows: int = options.option(0, "Classify only the first rows of the split; 0: all.", least=0)
    shard: str = options.option("1/1", "The part of the passes to run: 3/8 is the third of eight.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self, kind(self.experiment)):
            raise errors.UserError(
                f"--experiment={self.experiment}: give --config=configs/paper.py:{self.experiment} instead"
            )
        for option, get in (("tasks", catalogue.get), ("models", str), ("methods", methods.check)):
            names = tuple(dict.fromkeys(getattr(self, option)))
            list(map(get, names))
            object.__setattr__(self, option, names)
        tasks = [catalogue.get(task).name for task in self.tasks]
        if repeated := next((name for name in tasks if tasks.count(name) > 1), ""):
            raise errors.UserError(f"--tasks: two files have the task name {repeated!r}; give one another `name`")
        self.check_rows(self.tasks[0])
        self.shard_numbers  # noqa: B018 (raises)

    @property
    def shard_numbers(self) -> tuple[int, int]:
        """The index of this shard, from 0, and the number of shards."""
        numbers = re.fullmatch(r"(\d+)/(\d+)", self.shard)
        if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]):
            raise errors.UserError(f"--shard={self.shard}: write it as i/n with i from 1 to n, as in 3/8")
        return int(numbers[1]) - 1, int(numbers[2])

    @property
    def regime_shots(self) -> list[tuple[str, int]]:
        """Each regime with each of its numbers of shots."""
        return [(self.regime, shots) for shots in self.shots] + [(FEW_SHOT, shots) for shots in self.few_shots]


class CountSettings(GridSettings):
    """Options of the counts."""

    contexts: tuple[int, ...] = options.option((1024, 2048), "Context lengths in tokens.", least=1, needed=True)
    tokenizer: str = options.option("", "A folder with a tokenizer. Default: the tokenizer of the first model.")


class SplitSettings(GridSettings):
    """Options of a grid of split sizes; m is the sum of both sizes."""

    demo_shots: tuple[int, ...] = options.option((1, 2, 4, 8, 16), "|D|, demonstrations per class.", least=1)
    anchor_shots: tuple[int, ...] = options.option((1, 2, 4, 8, 16), "|A|, anchors per class.", least=1)


class ImbalanceSettings(GridSettings):
    """Options of a grid of skewed draws."""

    shares: tuple[float, ...] = options.option(
        (0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625), "Shares of the rare class.", least=0.001, most=0.5
    )


class PriorSettings(GridSettings):
    """Options of a grid of skewed train and test rows."""

    prior_settings: tuple[str, ...] = options.option(
        ("A", "B", "C"), "A: rare in train; B: rare in test; C: both.", choices=("A", "B", "C")
    )
    shares: tuple[float, ...] = options.option(
        (0.125, 0.25, 0.375, 0.5), "Shares of the positive class.", least=0.001, most=0.5
    )


class ReportSettings(options.Options):
    """The records to report and the form of the report."""

    records: str = options.option(
        "results",
        "Folder of records, folder with a folder of records per experiment, or packed file (*.jsonl.gz).",
        needed=True,
    )
    output: str = options.option(
        "report", "Folder to write index.html and tables/ to, with --format=html.", needed=True
    )
    format: str = options.option(
        "html",
        "html: a page beside the paper's numbers; text, markdown: tables on the terminal.",
        choices=("html", "text", "markdown"),
    )


_RETRIEVERS = "prompt_compose_bm25,prompt_compose_sbert,prompt_compose_simcse,prompt_compose_trans_encoder"
GRIDS: dict[str, dict[str, Any]] = {
    "sst2": {"tasks": "sst2", "shots": (1024,)},
    "max_shots": {},
    "few_shot": {
        "tasks": SIX_TASKS,
        "methods": "icl,contextual_calibration,noisy_channel,knn,knn_kl_labels",
        "shots": FEW_SHOTS,
        "seeds": TEN_SEEDS,
        "regime": FEW_SHOT,
    },
    "low_resource": {
        "models": SIX_MODELS,
        "methods": "icl,icl_ensemble,knn,fine_tuning_bert,fine_tuning_gpt2",
        "shots": (128,),
    },
    "prompt_compose": {"methods": f"icl,{_RETRIEVERS},knn"},
    "upper_bound": {"tasks": SIX_TASKS, "methods": "icl,demonstration_upper_bound,knn", "shots": (1024,)},
    "distance": {"methods": "icl,knn_l2,knn", "shots": (32,)},
    "whole_vs_partial": {"methods": "icl,knn,knn_kl_labels", "shots": (1024,)},
    "fine_tuning": {"models": "gpt2-large,facebook/opt-30b", "methods": "knn,fine_tuning_bert,fine_tuning_gpt2"},
    "data_scaling": {"models": SIX_MODELS, "few_shots": (1, *FEW_SHOTS)},
    "robustness": {"seeds": TEN_SEEDS},
    "prior_reliance": {
        "tasks": BINARY_TASKS,
        "methods": "icl,contextual_calibration,contextual_calibration_trainset,noisy_channel,knn",
        "shots": (16,),
        "seeds": TEN_SEEDS,
        "regime": FEW_SHOT,
    },
    "split_strategy": {"tasks": BINARY_TASKS, "methods": "knn", "seeds": TEN_SEEDS, "shots": ()},
    "choice_of_k": {
        "tasks": "sst2,subj,mpqa",
        "methods": "knn",
        "seeds": TEN_SEEDS,
        "regime": FEW_SHOT,
        "shots": (32,),  # The paper does not say m. With |D| = 1, 62 anchors remain.
    },
    "imbalance": {
        "tasks": "mpqa,mr",
        "methods": "knn,knn_centroid,knn_centroid_geometric",
        "shots": (1024,),
        "few_shots": (32,),
        "seeds": TEN_SEEDS,
    },
    "case_study": {"tasks": "dbpedia,sst2,trec,agnews,mr", "shots": (32,), "seeds": (1,)},
}
"""The values of the paper's runs, by experiment, that differ from the defaults."""
KINDS: dict[str, type[GridSettings]] = {
    "max_shots": CountSettings,
    "prior_reliance": PriorSettings,
    "split_strategy": SplitSettings,
    "imbalance": ImbalanceSettings,
}
"""The experiments with options beside those of every grid."""


def kind(name: str) -> type[GridSettings]:
    """Return the class of an experiment's options; raise UserError with the choices if there is no such experiment."""
    if name not in GRIDS:
        raise errors.UserError(f"no experiment {name!r}; choose from {', '.join(GRIDS)}")
    return KINDS.get(name, GridSettings)


def config(name: str) -> dict[str, Any]:
    """Return the values that repeat the paper's runs; raise UserError like `kind`."""
    kind(name)
    return {"experiment": name, "restore_dropped": True, **GRIDS[name]}
