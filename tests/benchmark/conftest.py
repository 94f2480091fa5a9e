"""Small models, so that every mode ends in seconds."""

import functools
import pathlib
from collections.abc import Callable

import pytest

from knnprompt_jax.benchmark import timing

SMALL = {
    **{"model": "tiny", "batch": 256, "anchors": 23, "shots": 20, "demo_shots": 1},
    **{"repetitions": 2, "peers": ("jax_one", "jax_batched"), "queries": (5,), "max_anchors": 1024},
    **{"peer_prompts": 5, "peer_suffixes": 9, "peer_batch": 3},
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict:
    """Options of a small benchmark, with small matrix products."""
    monkeypatch.setattr(timing, "default_side", lambda: 64)
    return dict(SMALL)


@pytest.fixture(scope="session")
def make_llama_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., pathlib.Path]:
    """`make_llama_file("Q4_1")` writes a small random Llama with matrices of that type, which says that it has no tokenizer.

    With `tokenizer=None` it does not even say that, which llama.cpp refuses. Its weights are large, so that distributions are
    peaked and depend on the whole text.
    """
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from tests.models import gguf_writer

    @functools.cache
    def write(kind: str, tokenizer: str | None = "no_vocab") -> pathlib.Path:
        path = tmp_path_factory.mktemp("gguf") / f"{kind}.gguf"
        values = gguf_writer.metadata("llama") | {"tokenizer.ggml.model": tokenizer}
        arrays = gguf_writer.tensors("llama", gguf_writer.make("llama"))
        arrays = {name: array * 10 if array.ndim > 1 else array for name, array in arrays.items()}
        gguf_writer.write_file(path, "llama", values, arrays, kind)
        return path

    return write
