"""llama.cpp beside our pass on the same GGUF file, where some Python has llama-cpp-python.

Set KNNPROMPT_LLAMA_PYTHON to the path of a Python that has it, if it is not installed in this one.
"""

import importlib.util
import os

import pytest

from knnprompt_jax import errors
from knnprompt_jax.benchmark import job, report, settings

PYTHON = os.environ.get("KNNPROMPT_LLAMA_PYTHON", "")
needs_llama = pytest.mark.skipif(
    not PYTHON and not importlib.util.find_spec("llama_cpp"),
    reason="llama-cpp-python is not installed, and KNNPROMPT_LLAMA_PYTHON names no Python that has it",
)


def run(tiny, file, **options):
    sizes = dict.fromkeys(("width", "layers", "heads", "vocab_size"), 0)
    own = {"mode": "construction", "peers": ("llama_cached",), "llama_python": PYTHON, "llama_threads": 1, **options}
    result = job.run(settings.BenchmarkSettings(**tiny | sizes | own, gguf=str(file)))
    return result["construction"], report.render(result)


@needs_llama
@pytest.mark.parametrize("prefix", [37, 0])
def test_same_distributions_without_quantisation(tiny, make_llama_file, prefix):
    """llama.cpp keeps keys and values in float16, hence no exact agreement."""
    found, text = run(tiny, make_llama_file("F32"), prefix_tokens=prefix)
    assert found["peers"]["llama_cached"]["prompts"] == 9 and found["absent"] == {}
    close = found["agreement"]["llama_cached"]
    assert close["prompts"] == 9 and 0 <= close["kl_mean"] <= close["kl_max"] < 1e-5
    assert found["llama"]["stored"] == ["F32"] and "as stored (F32); all others with the same" in text


@needs_llama
def test_quantised_weights_are_told(tiny, llama_file):
    found, text = run(tiny, llama_file)
    close = found["agreement"]["llama_cached"]
    assert 0 < close["kl_mean"] < 0.01 and found["llama"]["threads"] == 1
    assert "1 threads) computes with the file's weights as stored (Q4_1), and activations in 8 bits where" in text
    assert "9 prompts have a KL divergence from ours of" in text


@needs_llama
def test_pytorch_reads_the_same_file(tiny, llama_file):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    found, _ = run(tiny, llama_file, peers=("torch_one", "torch_cached", "llama_cached"), repetitions=1)
    assert set(found["peers"]) == {"ours", "torch_one", "torch_cached", "llama_cached"}
    assert all(found["agreement"][name]["max_abs_difference"] < 1e-4 for name in ("torch_one", "torch_cached"))


@needs_llama
def test_what_llama_cpp_refuses_is_one_line(tiny, make_llama_file):
    with pytest.raises(errors.UserError, match="^llama.cpp, load: RuntimeError: .*llama.cpp cannot load it; leave"):
        run(tiny, make_llama_file("Q4_1", tokenizer=None))
