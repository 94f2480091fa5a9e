"""The options of a benchmark, frozen and checked once."""

import dataclasses

from knnprompt_jax import errors
from knnprompt_jax.models import config as config_lib

MODES = ("construction", "search", "growth", "all")
JAX_PEERS = ("jax_one", "jax_batched")
TORCH_PEERS = ("torch_one", "torch_cached")
LLAMA_PEERS = ("llama_cached",)
PEERS = JAX_PEERS + TORCH_PEERS + LLAMA_PEERS
_SIZES = ("width", "layers", "heads", "head_size", "vocab_size")


@dataclasses.dataclass(frozen=True)
class BenchmarkSettings:
    """What to measure; see configs/benchmark.py for each option's meaning."""

    mode: str = "all"
    model_shape: str = "gpt2"
    width: int = 0
    layers: int = 0
    heads: int = 0
    head_size: int = 0
    vocab_size: int = 0
    gguf: str = ""
    dtype: str = "float32"
    batch: int = 0
    mesh_data: int = 0
    mesh_model: int = 1
    task: str = ""
    data_dir: str = ""
    tokenizer: str = ""
    restore_dropped: bool = False
    shots: int = 1024
    demo_shots: int = 8
    seed: int = 1
    anchors: int = 256
    prefix_tokens: int = 614
    suffix_tokens: float = 29.4
    repetitions: int = 3
    ceiling_side: int = 0
    peers: tuple[str, ...] = PEERS
    peer_prompts: int = 8
    peer_suffixes: int = 128
    peer_batch: int = 32
    agreement: int = 4
    llama_python: str = ""
    llama_threads: int = 0
    kinds: tuple[str, ...] = ("dense", "factored")
    direction: str = "forward"
    queries: tuple[int, ...] = (1, 256)
    k: int = 3
    max_store_gb: float = 1.0
    max_anchors: int = 65536
    growth_anchors: tuple[int, ...] = (128, 512)
    growth_prefixes: tuple[int, ...] = (0, 448, 896)
    output: str = "results"

    def __post_init__(self) -> None:
        choices = {
            "mode": MODES,
            "dtype": tuple(config_lib.DTYPES),
            "direction": ("forward", "released"),
            "peers": PEERS,
        }
        for name, allowed in choices.items():
            values = getattr(self, name)
            for value in (values,) if isinstance(values, str) else values:
                if value not in allowed:
                    raise errors.UserError(f"{name}={value!r}: choose from {', '.join(allowed)}")
        for name in ("queries", "kinds", "growth_anchors"):
            if not getattr(self, name):
                raise errors.UserError(
                    f"{name} is empty: at least one {'kind' if name == 'kinds' else 'number'} is needed"
                )
        positive = ("shots", "repetitions", "peer_prompts", "peer_suffixes", "peer_batch", "k", "suffix_tokens")
        for name in (*positive, "queries", "growth_anchors"):
            self._check_least(name, 1)
        for name in (*_SIZES, "batch", "demo_shots", "anchors", "prefix_tokens"):
            self._check_least(name, 0)
        for name in ("ceiling_side", "agreement", "llama_threads", "growth_prefixes"):
            self._check_least(name, 0)
        if replaced := [name for name in _SIZES if getattr(self, name) and self.gguf]:
            raise errors.UserError(f"gguf={self.gguf!r} has its own sizes; leave out {', '.join(replaced)}")
        if self.task and not ((self.tokenizer or self.gguf) and (self.data_dir or self.task == "demo")):
            raise errors.UserError(
                f"task={self.task!r} needs data_dir and tokenizer; without a task, lengths are drawn"
            )

    def _check_least(self, name: str, least: int) -> None:
        values = getattr(self, name)
        for value in values if isinstance(values, tuple) else (values,):
            if value < least:
                raise errors.UserError(f"{name}={value}: at least {least} is needed")
