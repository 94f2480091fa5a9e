"""The options that every grid of runs has."""

import dataclasses
import re

from knnprompt_jax import errors, options
from knnprompt_jax.methods import registry
from knnprompt_jax.report import results
from knnprompt_jax.runs import settings
from knnprompt_jax.store import distances
from knnprompt_jax.tasks import catalogue

FULL, FEW_SHOT = REGIMES = (results.FULL, results.FEW_SHOT)
SIX_TASKS = "sst2,subj,mpqa,cr,mr,trec"  # Those with M_T ≥ 8 in 1,024 tokens.
BINARY_TASKS = "sst2,subj,mpqa,cr,mr"
SIX_MODELS = "gpt2-large,gpt2-xl,facebook/opt-2.7b,facebook/opt-6.7b,facebook/opt-13b,facebook/opt-30b"
FEW_SHOTS = (2, 4, 8, 16, 32)
SHOTS = (32, 64, 128, 256, 512, 1024)
FIVE_SEEDS, TEN_SEEDS = tuple(range(1, 6)), tuple(range(1, 11))


@dataclasses.dataclass(frozen=True)
class GridSettings(settings.SharedSettings):
    """The runs of a table or figure, and how they are made.

    Raises:
      UserError: an unknown task or method, or a shard that does not exist.
    """

    experiment: str = options.option(
        "", "The table or figure, which is also its folder of records in the output folder.", needed=True
    )
    tasks: tuple[str, ...] = options.option(catalogue.PAPER_TASKS, "Names with commas between them.", needed=True)
    models: tuple[str, ...] = options.option(
        ("gpt2-xl",), "With commas: Hub names, folders, .gguf files, smollm2, tiny."
    )
    methods: tuple[str, ...] = options.option(("icl", "knn"), "Names with commas between them.")
    shots: tuple[int, ...] = options.option(SHOTS, "Train rows per class, m.", least=1)
    few_shots: tuple[int, ...] = options.option((), "More numbers of train rows, for the few-shot regime.", least=1)
    seeds: tuple[int, ...] = options.option(FIVE_SEEDS, "Seeds of the draws of train rows.", least=0, needed=True)
    regime: str = options.option(
        FULL, "full: |D| = M_T. few-shot: |D| = 1 for methods with anchors, |D| = m for all others.", choices=REGIMES
    )
    direction: str = options.option(
        "released",
        "The direction of KL divergences. released: KL(anchor ‖ test), which made the published numbers; forward: Eq. 5.",
        choices=distances.DIRECTIONS,
    )
    rows: int = options.option(0, "Classify only the first rows of the split; 0: all.", least=0)
    shard: str = options.option("1/1", "The part of the passes to run: 3/8 is the third of eight parts.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, get in (("tasks", catalogue.get), ("models", str), ("methods", registry.get)):
            names = tuple(dict.fromkeys(getattr(self, option)))
            list(map(get, names))
            object.__setattr__(self, option, names)
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
