"""The options of `benchmark`."""

import dataclasses

from knnprompt_jax import options
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.planning import settings

MODES = ("construction", "search", "all")
PEERS = {
    "jax_one": "JAX, one full prompt at a time",
    "jax_batched": "JAX, full prompts in batches",
    "torch_one": "transformers, one full prompt at a time (released code)",
    "torch_cached": "transformers, cached prefix, sorted padded batches",
    "llama_cached": "llama.cpp, cached prefix, sorted batches, weights as stored",
}
"""Other procedures that compute the same distributions, and their titles in tables (`peers` describes them)."""


@dataclasses.dataclass(frozen=True)
class BenchmarkSettings(settings.WorkloadOptions):
    """The measured model and its prompts, then what is compared in each mode."""

    mode: str = options.option("all", "The measurement.", choices=MODES)
    model: str = options.option(
        "smollm2",
        "smollm2, a folder, a .gguf file or a Hub name with its own weights; a published shape (gpt2-xl, opt-6.7b, Qwen3-0.6B) "
        "with random weights.",
        needed=True,
    )
    output: str = options.option("benchmarks", "Folder of the JSON file.", needed=True)
    dtype: str = options.option(
        "float32", "float32 is the reference, bfloat16 for accelerators.", choices=config_lib.FLOATS
    )
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
    stored: tuple[int, ...] = options.option(
        (1024, 4096, 16384, 65536), "Numbers of anchors of the stores.", least=1, needed=True
    )
    max_store_gb: float = options.option(
        1.0, "The largest store in GB of 10⁹ bytes; larger ones are left out.", least=0
    )
