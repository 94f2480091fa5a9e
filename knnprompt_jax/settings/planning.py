"""The options of plan and benchmark."""

from knnprompt_jax import errors, options, shipped
from knnprompt_jax.settings import shared
from knnprompt_jax.settings.models import DTYPES, FLOATS, MODEL_HELP, MeshOptions, ModelOptions
from knnprompt_jax.settings.stores import DISTANCES, StoreOptions

MODES = ("construction", "search", "all")
PEERS = {
    "jax_one": "JAX, one full prompt at a time",
    "jax_batched": "JAX, full prompts in batches",
    "torch_one": "transformers, one full prompt at a time (released code)",
    "torch_cached": "transformers, cached prefix, sorted padded batches",
    "llama_cached": "llama.cpp, cached prefix, sorted batches, weights as stored",
}
"""Other procedures that compute the same distributions, and their titles in tables (`peers` describes them)."""


class PlannedMesh(MeshOptions):
    """The meshes to plan for."""

    model: int = options.option(
        0, "Devices over which each copy of the weights is split; 0: a row for every possible number.", least=0
    )


class WorkloadOptions(shared.DrawOptions, shared.RowOptions, ModelOptions):
    """The tokenizer, the draw of train rows and the search."""

    tokenizer: str = options.option(
        "", "Folder of the tokenizer that counts tokens; empty: the model's own, or smollm2's if that is not available."
    )
    seed: int = options.option(1, "Seed of the draw of train rows.", least=0)
    distance: str = options.option("kl", "Distance of the search.", choices=DISTANCES)
    output: str = options.option("plans", "Folder of the JSON file.", needed=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_rows(self.task, self.train_file)


class PlanSettings(WorkloadOptions):
    """The model and devices to plan for; the devices need not exist."""

    model: str = options.option(shipped.DEFAULT, MODEL_HELP, needed=True)
    dtype: str = options.option("float32", "The dtype of weights and activations.", choices=DTYPES)
    topology: str = options.option(
        "v5e:2x4",
        "Devices: v4:2x2x1, v5e:4x4, v5p:2x2x4, v6e:2x4, h100:8 (one host) or cpu:8; an unknown name lists them all.",
        needed=True,
    )
    compile: bool = options.option(
        True, "Compile the programs for a TPU to get the exact memory; False: arithmetic alone, in a second."
    )
    anchors: int = options.option(
        0, "Number of anchors, as long as those of the task; 0: as many as are drawn.", least=0
    )
    queries: int = options.option(256, "Number of texts to classify, as long as those of the task.", least=1)
    mesh: MeshOptions = options.group(PlannedMesh)
    datastore: StoreOptions = options.group(StoreOptions)


class BenchmarkSettings(WorkloadOptions):
    """The measured model and its prompts, then what is compared in each mode."""

    mode: str = options.option("all", "The measurement.", choices=MODES)
    model: str = options.option(
        "smollm2",
        "smollm2, a folder, a .gguf file or a Hub name with its own weights; a published shape (gpt2-xl, opt-6.7b, Qwen3-0.6B) "
        "with random weights.",
        needed=True,
    )
    output: str = options.option("benchmarks", "Folder of the JSON file.", needed=True)
    dtype: str = options.option("float32", "float32 is the reference, bfloat16 for accelerators.", choices=FLOATS)
    shots: int = options.option(1024, "Train rows per class.", least=1)
    demo_shots: int = options.option(8, "Demonstrations per class among them.", least=0)
    anchors: int = options.option(256, "Prompts per turn; 0: all anchors.", least=0)

    repetitions: int = options.option(3, "Rounds; each contender has one timed turn per round.", least=1)
    peers: tuple[str, ...] = options.option(
        tuple(PEERS),
        "Construction: other procedures to time. Those of torch need PyTorch, llama_cached needs a GGUF file and llama-cpp-python.",
        choices=PEERS,
    )
    peer_prompts: int = options.option(8, "Whole prompts per turn of a peer without a cached prefix.", least=1)
    peer_suffixes: int = options.option(128, "Suffixes per turn of a peer with a cached prefix.", least=1)
    peer_batch: int = options.option(32, "Prompts per batch of the peers.", least=1)

    queries: tuple[int, ...] = options.option((1, 256), "Numbers of queries per search.", least=1, needed=True)
    k: int = options.option(3, "Neighbours per query.", least=1)
    stored: tuple[int, ...] = options.option((1024, 4096, 16384, 65536), "Anchors in each store.", least=1, needed=True)
    max_store_gb: float = options.option(
        1.0, "The largest store in GB of 10⁹ bytes; larger ones are left out.", least=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode != MODES[0] and self.k > min(self.stored):
            raise errors.UserError(f"--k={self.k}: the smallest store has {min(self.stored)} anchors (--stored)")
