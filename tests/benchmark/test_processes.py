"""Peers in other processes: PyTorch and llama.cpp compute our distributions; a missing or failing library is one line."""

import contextlib
import importlib
import importlib.util
import json
import os

import jax
import numpy as np
import pytest
from flax import nnx

from knnprompt_jax import errors, lm
from knnprompt_jax.benchmark import construction, peers, processes, settings
from knnprompt_jax.models import decoder, registry
from knnprompt_jax.planning import workload
from knnprompt_jax.prompts import layout

PYTHON = os.environ.get("KNNPROMPT_LLAMA_PYTHON", "")
SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "vocab_size": 101}
GPT2_SIZES = {"n_embd": 48, "n_head": 6, "n_layer": 2, "vocab_size": 101}
# Families whose cached prefix differs: plain, or shared heads and windows in most or every other layer, with soft caps.
SHAPES = {
    "gpt2": GPT2_SIZES,
    "google/gemma-2-2b": SIZES
    | {"num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 67, "sliding_window": 29},
    "google/gemma-3-270m": SIZES
    | {"num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 67, "sliding_window": 29},
}


class InProcess:
    """Answer like a process of PyTorch."""

    def __init__(self, answering):
        self._answering = answering

    def ask(self, do, **arguments):
        getattr(self._answering, do)(**json.loads(json.dumps(arguments, default=np.ndarray.tolist)))
        return 1.0


def make_group(prefix, vocabulary=101):
    rng = np.random.default_rng(1)
    suffixes = tuple(rng.integers(0, vocabulary, length) for length in rng.integers(1, 13, 23))
    return layout.PromptGroup(rng.integers(0, vocabulary, prefix), suffixes, np.arange(23))


def measure(small, monkeypatch, shape, prefix=37, other=None):
    """Return each torch peer's largest difference from ours for a small model with large weights, so that all of it matters."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    @contextlib.contextmanager
    def start(library, python=""):
        with torch.inference_mode():
            yield InProcess(importlib.import_module(library.module).Peers())

    monkeypatch.setattr(processes, "start", start)
    hf = {**registry.PUBLISHED[shape], **SHAPES[shape]}
    subject = workload.Subject(shape, hf, registry.config_from_hf(hf), None)
    weights = decoder.Decoder(subject.config, nnx.Rngs(0))
    for path, leaf in nnx.to_flat_state(nnx.state(weights)):
        noise = jax.random.normal(jax.random.key(len(str(path))), leaf.shape)
        leaf[...] = leaf[...] + (0.1 if path[-1] == "scale" else 0.2) * noise
    model = lm.LanguageModel(weights, (), shape)
    own = settings.BenchmarkSettings(**small | {"peers": ("torch_one", "torch_cached")})
    sampled = peers.sample(make_group(prefix), own)
    if other:
        export = processes.export

        def spoil(folder, *arguments):
            export(folder, *arguments)
            path = folder / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | other))

        monkeypatch.setattr(processes, "export", spoil)
    with processes.start_all(weights, subject, sampled, own) as (running, absent):
        found = construction.compare(model, sampled, running)
    assert not absent and {name: each["prompts"] for name, each in found.items()} == {"torch_one": 4, "torch_cached": 3}
    return [each["max_abs_difference"] for each in found.values()]


@pytest.mark.parametrize(("shape", "prefix"), [*((shape, 37) for shape in SHAPES), ("gpt2", 0)])
def test_pytorch_has_the_same_model(small, monkeypatch, shape, prefix):
    assert max(measure(small, monkeypatch, shape, prefix)) < 1e-4


@pytest.mark.parametrize(
    ("shape", "other"),
    [("google/gemma-2-2b", {"final_logit_softcapping": 3.0}), ("google/gemma-3-270m", {"sliding_window": 23})],
)
def test_another_model_is_detected(small, monkeypatch, shape, other):
    assert min(measure(small, monkeypatch, shape, other=other)) > 1e-3


@pytest.mark.parametrize(
    ("is_installed", "model", "names", "reason"),
    [
        (True, "tiny", ("llama_cached",), "llama.cpp reads GGUF files and --model names none"),
        (False, "smollm2", ("llama_cached",), "llama-cpp-python is not installed and --llama_python"),
        (False, "tiny", ("torch_one", "torch_cached"), "PyTorch is not installed"),
        (True, "tiny", ("torch_one", "torch_cached"), "rope_freqs.weight"),
    ],
)
def test_absent_peers_have_their_reasons(small, monkeypatch, is_installed, model, names, reason):
    monkeypatch.setattr(processes.Library, "is_installed", lambda library: is_installed)
    subject = workload.describe(model)
    subject.hf.update({"rope_factors": [1.0, 2.0]} if reason.startswith("rope") else {})
    own = settings.BenchmarkSettings(**small | {"peers": names})
    with processes.start_all(None, subject, peers.sample(make_group(37), own), own) as (running, absent):
        assert set(absent) == {*names} and not running and all(reason in each for each in absent.values())


ANSWERS = """
from knnprompt_jax.benchmark import answering
class Peers:
    def works(self, much): print("no answer")
    def fails(self): raise ValueError("so\\nmuch")
answering.serve(Peers())
"""


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """`broken(code)` is a library whose process runs the code."""

    def make(code):
        (tmp_path / "broken_peer.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return processes.Library("Broken", "broken", "broken_peer")

    return make


def test_a_process_answers_and_fails_in_one_line(broken):
    with processes.start(broken(ANSWERS)) as process:
        assert process.ask("works", much=3) > 0
        with pytest.raises(errors.UserError, match="^Broken, fails: ValueError: so much; leave it out with --peers$"):
            process.ask("fails")


@pytest.mark.parametrize("code", ["import nowhere", "import sys; sys.stdin.readline(); import nowhere"])
def test_a_process_that_ends(broken, code):
    with (
        processes.start(broken(code)) as process,
        pytest.raises(errors.UserError, match=r"Broken, load: its process ended with status 1 \(ModuleNotFoundError"),
    ):
        process.ask("load")


def test_a_missing_python(broken):
    with (
        pytest.raises(errors.UserError, match="Broken: cannot run '/nowhere/python': No such file"),
        processes.start(broken(""), "/nowhere/python"),
    ):
        raise AssertionError


@pytest.mark.skipif(
    not PYTHON and not importlib.util.find_spec("llama_cpp"),
    reason="llama-cpp-python is not installed, and KNNPROMPT_LLAMA_PYTHON names no Python that has it",
)
@pytest.mark.parametrize(("kind", "prefix", "most"), [("F32", 37, 1e-5), ("F32", 0, 1e-5), ("Q4_1", 37, 0.01)])
def test_llama_cpp_has_the_same_distributions(small, make_llama_file, kind, prefix, most):
    """llama.cpp keeps keys and values in float16, hence no exact agreement."""
    own = settings.BenchmarkSettings(
        **small | {"model": str(make_llama_file(kind)), "peers": ("llama_cached",), "llama_python": PYTHON}
    )
    subject = workload.describe(own.model)
    weights, model = construction.load(own, subject, ())
    sampled = peers.sample(make_group(prefix, subject.config.vocab_size), own)
    with processes.start_all(weights, subject, sampled, own) as (running, _):
        found = construction.compare(model, sampled, running)["llama_cached"]
    assert found["prompts"] == 9 and 0 <= found["kl_mean"] <= found["kl_max"] < most
    with pytest.raises(errors.UserError, match="^llama.cpp, load: RuntimeError: .*llama.cpp cannot load it; leave"):
        subject = workload.describe(str(make_llama_file("Q4_1", tokenizer=None)))
        with processes.start_all(weights, subject, sampled, own):
            pass
