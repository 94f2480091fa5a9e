"""The options of `check`."""

from knnprompt_jax import options
from knnprompt_jax.settings.shared import DistributedOptions

SHAPES = ("gpt2-xl", "facebook/opt-6.7b", "meta-llama/Meta-Llama-3-8B")


class CheckSettings(options.Options):
    """The checks to run, and their time."""

    quick: bool = options.option(False, "Check correctness only, with the tiny model; under a minute on two CPU cores.")
    minutes: float = options.option(
        8.0, "Minutes for all checks; one whose estimated time does not fit is listed as not run.", least=0.1
    )
    shapes: tuple[str, ...] = options.option(
        SHAPES, "Published models whose shapes, with random weights, build a datastore; empty for none."
    )
    output: str = options.option("checks", "Folder of the JSON file.", nonempty=True)
    distributed: DistributedOptions = options.group(DistributedOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quick:
            self.refuse(("minutes", "shapes"), "with --quick")
