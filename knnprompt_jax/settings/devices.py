"""The options of `check` and `benchmark`."""

from knnprompt_jax import files, options
from knnprompt_jax.models import DTYPES
from knnprompt_jax.settings import shared


class CheckSettings(options.Options):
    """The checks to run."""

    quick: bool = options.option(False, "Check correctness only; under a minute on two CPU cores.")
    shapes: tuple[str, ...] | None = options.option(
        None,
        "Published models whose shapes, with random weights, are measured. By default gpt2 on CPUs, otherwise gpt2-xl, "
        "facebook/opt-6.7b and meta-llama/Meta-Llama-3-8B.",
    )
    output: str = options.option("checks", "Folder of the JSON file.", nonempty=True, check=files.check_output_folder)
    distributed: shared.DistributedOptions = options.group(shared.DistributedOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quick:
            self.refuse(("shapes",), "with --quick")


class BenchmarkSettings(shared.DrawOptions, shared.RowOptions, shared.ModelOptions):
    """The model, the prompts, and what to measure or estimate."""

    FURTHER = ("encoding", "delimiter", "on_bad", "label_column", "text_columns", "hub")

    dry_run: bool = options.option(
        False, "Estimate memory, operations and a lower bound of the time by arithmetic; load no weights."
    )
    topology: str | None = options.option(
        None,
        "Devices of a dry run, which need not exist: v5e:4x4, v5p:2x2x4, v6e:2x4, h100:8 (one host) or cpu:8. By default "
        "those of this machine. An unknown name lists all.",
        nonempty=True,
    )
    model: str = options.option(
        "smollm2",
        "smollm2, a folder, a .gguf file or a Hub name with its own weights; a published shape (gpt2-xl, opt-6.7b, Qwen3-0.6B) "
        "with random weights.",
        nonempty=True,
    )
    tokenizer: str = options.option(
        "", "Folder of the tokenizer that counts tokens; empty: the model's own, or smollm2's if that is not available."
    )
    dtype: str = options.option("float32", "float32 is the reference, bfloat16 for accelerators.", choices=DTYPES)
    seed: int = options.option(1, "Seed of the draw of train rows.", least=0)
    shots: int = options.option(1024, "Train rows per class.", least=1)
    anchors: int = options.option(
        256, "Anchors to read; 0: all of the split. A dry run may have more anchors than the split.", least=0
    )
    queries: int = options.option(256, "Texts to classify in a dry run, as long as the anchors.", least=1)
    store: str = options.option("factored", "Kind of the datastore of a dry run.", choices=("dense", "factored"))
    output: str = options.option(
        "benchmarks", "Folder of the JSON file.", nonempty=True, check=files.check_output_folder
    )
    repetitions: int = options.option(3, "Timed passes.", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_rows(self.task, bool(self.train_file))
        if self.dry_run:
            self.refuse(("repetitions", "mesh"), "with --dry_run")
        else:
            self.refuse(("topology", "queries", "store"), "without --dry_run")
