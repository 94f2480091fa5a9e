"""The options of a benchmark."""

import dataclasses

from knnprompt_jax import errors, options
from knnprompt_jax.models import config as config_lib
from knnprompt_jax.runs import settings as settings_lib
from knnprompt_jax.store import distances
from knnprompt_jax.store import store as store_lib

MODES = ("construction", "search", "growth", "all")
PEERS = {
    "jax_one": "JAX, one full prompt at a time",
    "jax_batched": "JAX, full prompts in batches",
    "torch_one": "transformers, one full prompt at a time (released code)",
    "torch_cached": "transformers, cached prefix, sorted padded batches",
    "llama_cached": "llama.cpp, cached prefix, sorted batches, weights as stored",
}
"""Other ways to the same distributions, which `peers` describes: their names, and their titles in tables."""
_SIZES = ("width", "layers", "heads", "head_size", "vocab_size")


@dataclasses.dataclass(frozen=True)
class BenchmarkSettings(settings_lib.RowOptions, settings_lib.ComputeOptions):
    """What to measure: the model, its prompts, then what is compared in each mode."""

    dtype: str = options.option(
        "float32", "float32 is the reference, bfloat16 for accelerators.", choices=config_lib.FLOATS
    )
    mode: str = options.option("all", "What to measure.", choices=MODES)
    model_shape: str = options.option(
        "gpt2", "A published size of any family, say opt-6.7b, Llama-3.2-1B, Qwen3-0.6B or gemma-2-2b.", needed=True
    )
    width: int = options.option(0, "0: the shape's. MLPs widen with it.", least=0)
    layers: int = options.option(0, "0: the shape's.", least=0)
    heads: int = options.option(0, "0: the shape's. As many as before share keys and values.", least=0)
    head_size: int = options.option(
        0, "0: the shape's. Only where heads need not share the width: Qwen3, Gemma, those like Llama.", least=0
    )
    vocab_size: int = options.option(0, "0: the shape's.", least=0)
    gguf: str = options.option(
        "", "Instead of a shape with random weights, a GGUF file, or smollm2 for the packaged one."
    )

    task: str = options.option("", "A task's prompts; empty: random tokens of drawn lengths.")
    tokenizer: str = options.option("", "A folder with the model's tokenizer; empty: the GGUF file's.")
    shots: int = options.option(1024, "Train rows per class.", least=1)
    demo_shots: int = options.option(8, "Demonstrations per class among them.", least=0)
    seed: int = options.option(1, "Of the draw of train rows, or of lengths.", least=0)
    anchors: int = options.option(
        256, "Prompts per turn; 0: the task's whole anchor set, or 1,024 drawn ones.", least=0
    )
    prefix_tokens: int = options.option(
        614, "Without a task: tokens of the demonstrations. 614 are MR's with 8 of them per class.", least=0
    )
    suffix_tokens: float = options.option(
        29.4, "Without a task: tokens of a suffix on average. 29.4 are MR's.", least=1
    )

    repetitions: int = options.option(3, "Rounds in which everything compared has one timed turn.", least=1)
    ceiling_side: int = options.option(
        0, "Side of the square matrices by which the device's peak is measured; 0: what suits the device.", least=0
    )
    peers: tuple[str, ...] = options.option(
        tuple(PEERS),
        "Other ways to the same distributions. Those of torch run where it is installed, llama_cached where there are a "
        "GGUF file and llama-cpp-python.",
        choices=PEERS,
    )
    peer_prompts: int = options.option(8, "Whole prompts that peers without a shared prefix read per turn.", least=1)
    peer_suffixes: int = options.option(128, "Suffixes that peers with a cached prefix read per turn.", least=1)
    peer_batch: int = options.option(32, "Prompts per batch of the peers.", least=1)
    agreement: int = options.option(
        4,
        "Whole prompts whose log-probabilities are compared with PyTorch's, beside batches; 0: nothing is compared, and "
        "PyTorch has random weights of its own (those of a GGUF file it has always).",
        least=0,
    )
    llama_python: str = options.option(
        "", "Path of a Python that has llama-cpp-python; empty: this one. JAX and PyTorch are not needed there."
    )
    llama_threads: int = options.option(0, "Threads of llama.cpp; 0: one per core.", least=0)

    kinds: tuple[str, ...] = options.option(
        tuple(store_lib.KINDS), "Stores to search.", choices=store_lib.KINDS, needed=True
    )
    distance: str = options.option("forward", "By which stores are searched.", choices=distances.DISTANCES)
    queries: tuple[int, ...] = options.option((1, 256), "Queries per search.", least=1, needed=True)
    k: int = options.option(3, "Neighbours per query.", least=1)
    max_store_gb: float = options.option(
        1.0, "Stores grow by fours from 1,024 anchors to this size, in GB of 10⁹ bytes.", least=0
    )
    max_anchors: int = options.option(65536, "Or to this number of anchors.", least=1)

    growth_anchors: tuple[int, ...] = options.option(
        (128, 512),
        "Sizes of a growing set of anchors; 1024,4096,16384,65536 takes hours on a CPU.",
        least=1,
        needed=True,
    )
    growth_prefixes: tuple[int, ...] = options.option(
        (0, 448, 896), "Tokens of growing demonstrations; up to 1,900 for OPT's context.", least=0
    )
    output: str = options.option("results", "Folder of the JSON file.", needed=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if replaced := [name for name in _SIZES if getattr(self, name) and self.gguf]:
            raise errors.UserError(f"gguf={self.gguf!r} has its own sizes; leave out {', '.join(replaced)}")
        if self.task and not ((self.tokenizer or self.gguf) and (self.data_dir or self.hub or self.task == "demo")):
            raise errors.UserError(
                f"task={self.task!r} needs data_dir and tokenizer; without a task, lengths are drawn"
            )
