"""Measure the construction of a datastore beside llama.cpp on the same GGUF file, and beside PyTorch.

pip install llama-cpp-python
python tools/benchmark_llama.py --model=smollm2 --task=trec --data_dir=data --peer_suffixes=64

The options are those of experiments/benchmark.py. llama.cpp reads the cached prefix before the clock starts; suffixes
sorted by length go in batches without padding, in the file's quantised weights.
"""

import pathlib
from typing import TYPE_CHECKING, Any

from knnprompt_jax import app, errors, options
from knnprompt_jax.settings import benchmark as settings_lib

if TYPE_CHECKING:
    from knnprompt_jax.benchmark import workload

PEERS = {"llama_cached": "llama.cpp, cached prefix, sorted batches, weights as stored"}


class LlamaSettings(settings_lib.BenchmarkSettings):
    """The procedures to compare."""

    peers: tuple[str, ...] = options.option(
        ("torch_cached", *PEERS), "Procedures to time.", choices=(*settings_lib.PEERS, *PEERS)
    )


def run(settings: LlamaSettings) -> dict[str, Any]:
    """Return the result of `construction.run` with llama.cpp among the libraries."""
    from knnprompt_jax.benchmark import construction, peers

    llama = peers.Library("llama.cpp", "llama_peers", PEERS, lambda _, __, subject: find_file(subject))
    return construction.run(settings, (peers.TORCH, llama))


def find_file(subject: "workload.ModelShape") -> pathlib.Path:
    """Return the GGUF file of a model; raise UserError if it has none."""
    if subject.path is None or subject.path.suffix != ".gguf":
        raise errors.UserError("llama.cpp reads GGUF files and --model names none")
    return subject.path


if __name__ == "__main__":
    FLAGS = app.Flags(LlamaSettings, keeps_programs=False)

    def main() -> None:
        """Print and save the result."""
        from knnprompt_jax.benchmark import report

        result = report.describe_machine() | run(FLAGS.value)
        report.publish(FLAGS.value.output, "llama", FLAGS.value, result)

    FLAGS.run(main)
