"""What jobs that run methods are told. Apart from other settings, for these know all methods' options and so import all methods."""

import dataclasses

from knnprompt_jax import errors
from knnprompt_jax import options as options_lib
from knnprompt_jax.methods import registry
from knnprompt_jax.runs import settings
from knnprompt_jax.store.store import StoreOptions


@dataclasses.dataclass(frozen=True)
class SharedSettings(settings.ReadingOptions, settings.RowOptions):
    """The options of every job that runs methods on the rows of tasks."""

    split: str = options_lib.option("dev_subsample", "The split whose rows are classified.", needed=True, decisive=True)
    drop_duplicates: bool = options_lib.option(
        False,
        "Leave out train rows that repeat, contradict each other or are among the rows to classify.",
        decisive=True,
    )
    output: str = options_lib.option("results", "Folder of the JSON records.", needed=True)
    states_gb: float = options_lib.option(
        2.0,
        "GiB on disk, in <output>/states, for states of prompts, which no other run then reads again; 0: none.",
        least=0,
    )
    distributed: settings.DistributedOptions = options_lib.group(settings.DistributedOptions)
    datastore: StoreOptions = options_lib.group(StoreOptions)
    options: options_lib.Options = options_lib.group(registry.options_kind())


@dataclasses.dataclass(frozen=True)
class JobSettings(settings.DrawOptions, SharedSettings):
    """Any set of methods, one task and one model."""

    eval_file: str = options_lib.option(
        "", "The rows to classify from a file as train_file; the two go together.", decisive=True
    )
    methods: str = options_lib.option(
        registry.ALL, "Names with commas between them (docs/methods.md lists them), or all that apply."
    )
    seeds: tuple[int, ...] = options_lib.option(
        (1, 2, 3, 4, 5), "Seeds of the draws of train rows.", least=0, needed=True
    )
    store: str = options_lib.option(
        "",
        "Folder of a saved classifier (fit.py) whose demonstrations and anchors are used, and its model unless "
        "another is named; seeds and shots are not.",
        decisive=True,
    )
    resume: bool = options_lib.option(False, "Skip what the output folder has a record of by the same settings.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.train_file) != bool(self.eval_file):
            raise errors.UserError("train_file and eval_file go together: give both files or neither")

    @property
    def method_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.methods.split(",") if name.strip())
