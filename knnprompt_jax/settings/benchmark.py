"""The options of `benchmark`."""

from knnprompt_jax import options
from knnprompt_jax.models import DTYPES
from knnprompt_jax.settings import shared
from knnprompt_jax.settings.shared import MeshOptions, ModelOptions
from knnprompt_jax.store import StoreOptions

PEERS = {
    "torch_one": "transformers, one full prompt at a time (released code)",
    "torch_cached": "transformers, cached prefix, sorted padded batches",
}
"""Procedures of PyTorch that compute the same distributions, and their titles in tables."""


class BenchmarkMesh(MeshOptions):
    """The layout of the devices."""

    model: int = options.option(
        0,
        "Devices that each copy of the weights is split over; 0: the fewest with enough memory. A dry run with 0 lists "
        "every possible number.",
        least=0,
    )


class BenchmarkSettings(shared.DrawOptions, shared.RowOptions, ModelOptions):
    """The model, the prompts, and what to measure or estimate."""

    FURTHER = (
        *("encoding", "delimiter", "on_bad", "label_column", "text_columns", "hub"),
        *("peers", "peer_batch", "peer_prompts", "peer_suffixes", "datastore.memory_mb"),
    )

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
    distance: str = options.option("kl", "Distance of the search in a dry run (docs/methods.md).", nonempty=True)
    output: str = options.option("benchmarks", "Folder of the JSON file.", nonempty=True)

    repetitions: int = options.option(3, "Rounds; each contender has one timed turn per round.", least=1)
    peers: tuple[str, ...] = options.option(
        tuple(PEERS), "Procedures of PyTorch to time; empty for none.", choices=PEERS
    )
    peer_prompts: int = options.option(8, "Whole prompts per turn of a peer without a cached prefix.", least=1)
    peer_suffixes: int = options.option(128, "Suffixes per turn of a peer with a cached prefix.", least=1)
    peer_batch: int = options.option(32, "Prompts per batch of the peers.", least=1)
    mesh: MeshOptions = options.group(BenchmarkMesh)
    datastore: StoreOptions = options.group(StoreOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_rows(self.task, bool(self.train_file))
        if not self.dry_run:
            self.refuse(("topology", "queries", "distance", "datastore"), "without --dry_run")
        else:
            names = ("repetitions", "peers", "peer_prompts", "peer_suffixes", "peer_batch")
            self.refuse(names, "with --dry_run")
