"""The options of a grid of runs: those that every table and figure has."""

import dataclasses
import re

from knnprompt_jax import errors, options
from knnprompt_jax.methods import registry
from knnprompt_jax.report import results
from knnprompt_jax.runs import method_settings
from knnprompt_jax.store import distances
from knnprompt_jax.tasks import catalogue

FULL, FEW_SHOT = REGIMES = (results.FULL, results.FEW_SHOT)
TEN_TASKS = ",".join(catalogue.PAPER_TASKS)
SIX_TASKS = "sst2,subj,mpqa,cr,mr,trec"  # Those with M_T ≥ 8 in 1,024 tokens.
BINARY_TASKS = "sst2,subj,mpqa,cr,mr"
SIX_MODELS = "gpt2-large,gpt2-xl,facebook/opt-2.7b,facebook/opt-6.7b,facebook/opt-13b,facebook/opt-30b"
FEW_SHOTS = (2, 4, 8, 16, 32)
SHOTS = (32, 64, 128, 256, 512, 1024)
FIVE_SEEDS, TEN_SEEDS = tuple(range(1, 6)), tuple(range(1, 11))


@dataclasses.dataclass(frozen=True)
class GridSettings(method_settings.SharedSettings):
    """Which runs a table or figure is made of, and how they are made.

    Raises:
        UserError: also where a task or method is unknown, or the shard is none.
    """

    experiment: str = options.option(
        "", "The table or figure: its folder of records in the output folder.", needed=True
    )
    tasks: str = options.option(TEN_TASKS, "Names with commas between them.")
    models: str = options.option("gpt2-xl", "With commas: Hub names, folders, .gguf files, smollm2, tiny.")
    per_model: str = options.option(
        "", "Options of single models: 'opt-30b mesh.model=8 dtype=bfloat16; gpt2-xl batch=8192'."
    )
    methods: str = options.option("icl,knn", "Names with commas between them.")
    shots: tuple[int, ...] = options.option(SHOTS, "Train rows per class, m.", least=1)
    few_shots: tuple[int, ...] = options.option((), "More numbers of train rows, in the few-shot regime.", least=1)
    seeds: tuple[int, ...] = options.option(FIVE_SEEDS, "Of the draws of train rows.", least=0, needed=True)
    regime: str = options.option(
        FULL, "full: |D| = M_T. few-shot: |D| = 1 where there are anchors, all m shots elsewhere.", choices=REGIMES
    )
    direction: str = options.option(
        "released",
        "Of KL divergences: released is KL(anchor ‖ test), which made the published numbers; forward is Eq. 5.",
        choices=distances.DIRECTIONS,
    )
    rows: int = options.option(
        0, "Only so many rows to classify, the first of the split; 0: all.", least=0, decisive=True
    )
    tflops: float = options.option(
        0.0, "For a dry run's hours: what this machine does per second; 0: measured where weights are here.", least=0
    )
    topology: str = options.option("", "For a dry run's hours: devices to plan for, as plan.py names them (v5e:2x4).")
    shard: str = options.option("1/1", "Which part of the passes to run, of how many: 3/8 is the third of eight.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.task_names:
            catalogue.get(name)
        for name in self.method_names:
            registry.get(name)
        self.shard_numbers  # noqa: B018 (raises)

    @property
    def task_names(self) -> list[str]:
        return split_names(self.tasks)

    @property
    def model_names(self) -> list[str]:
        return split_names(self.models)

    @property
    def method_names(self) -> list[str]:
        return split_names(self.methods)

    @property
    def shard_numbers(self) -> tuple[int, int]:
        """Which shard this is, from 0, and how many there are."""
        numbers = re.fullmatch(r"(\d+)/(\d+)", self.shard)
        if not numbers or not 1 <= int(numbers[1]) <= int(numbers[2]):
            raise errors.UserError(f"shard={self.shard!r}: write it as i/n with i from 1 to n, as in 3/8")
        return int(numbers[1]) - 1, int(numbers[2])

    @property
    def regime_shots(self) -> list[tuple[str, int]]:
        """Each regime with each of its numbers of shots."""
        return [(self.regime, shots) for shots in self.shots] + [(FEW_SHOT, shots) for shots in self.few_shots]


def split_names(text: str) -> list[str]:
    """The names in a text with commas between them, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
