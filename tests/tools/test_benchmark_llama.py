"""llama.cpp needs a GGUF file: other models leave it out with the reason."""

import pathlib

import pytest

from knnprompt_jax import errors
from knnprompt_jax.benchmark import timing, workload
from tools import benchmark_llama


def test_llama_is_absent_without_a_gguf_file(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "_SIDE_ON_CPU", 64)
    small = {"model": "tiny", "batch": 256, "anchors": 23, "shots": 20, "demo_shots": 1, "repetitions": 1}
    result = benchmark_llama.run(benchmark_llama.LlamaSettings(**small, peers=("llama_cached",)))
    assert [row["peer"] for row in result["peers"]] == ["ours"]
    reason = "llama.cpp reads GGUF files and --model names none"
    assert result["absent"] == [{"without": benchmark_llama.PEERS["llama_cached"], "reason": reason}]


def test_the_file_of_a_gguf_model_is_found():
    path = pathlib.Path("folder/model.gguf")
    subject = workload.ModelShape("model", {}, workload.describe("tiny").config, path)
    assert benchmark_llama.find_file(subject) == path
    with pytest.raises(errors.UserError, match="reads GGUF files"):
        benchmark_llama.find_file(workload.describe("opt-125m"))
