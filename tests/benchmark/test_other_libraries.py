"""PyTorch's peers compute what ours computes, for every family; and what is told when a library is absent or fails."""

import contextlib
import importlib
import json
import sys

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.benchmark import agreement, other_libraries, peer_process, peers, settings, subjects, workloads
from knnprompt_jax.models import registry

TORCH_PEERS = ("torch_one", "torch_cached")
# Heads are 8 wide, or 6 where their size is a number of its own, and shared where the published ones are.
SIZES = {"width": 96, "heads": 12, "layers": 3, "vocab_size": 101}
OWN_HEADS = ("qwen3", "gemma2", "gemma3_text")
# One of each family; its prompts are longer than its windows where that is cheap.
SHAPES = {
    "gpt2": "gpt2",
    "opt": "opt-350m",
    "llama": "SmolLM2-135M",
    "mistral": "Mistral-7B-v0.3",
    "qwen2": "Qwen2.5-1.5B",
    "qwen3": "Qwen3-0.6B",
    "gemma2": "gemma-2-2b",
    "gemma3_text": "gemma-3-270m",
    "gpt_neox": "pythia-70m",
    "olmo2": "OLMo-2-0425-1B",
    "phi": "phi-1_5",
    "phi3": "phi-4",
    "smollm3": "SmolLM3-3B-Base",
}


class InProcess:
    """Answers as a process of PyTorch does."""

    def __init__(self, answering):
        self._answering = answering

    def ask(self, do, **arguments):
        getattr(self._answering, do)(**json.loads(json.dumps(arguments, default=np.ndarray.tolist)))
        return 1.0

    def turn(self, do):
        return lambda: self.ask(do)


@pytest.fixture
def in_process(monkeypatch):
    """PyTorch's peers run in the tests' own process; weights are large, so that everything in the model matters."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    @contextlib.contextmanager
    def start(library, python=""):
        with torch.inference_mode():
            yield InProcess(importlib.import_module(library.module).Peers())

    monkeypatch.setattr(peer_process, "start", start)
    monkeypatch.setattr(workloads, "SPREAD", 0.25)


def make(tiny, **options):
    """Settings, subject, decoder, model and sample of a tiny benchmark."""
    own = settings.BenchmarkSettings(**{**tiny, **options})
    subject = subjects.choose(own)
    decoder, model = workloads.language_model(own, subject)
    return own, subject, decoder, model, peers.sample(workloads.make(own, subject), own)


def distances(tiny, family, **options):
    sizes = SIZES | ({"head_size": 6} if family in OWN_HEADS else {})
    prefix = 530 if family == "gemma3_text" else 37
    options |= {"model_shape": SHAPES[family], "prefix_tokens": prefix, "peers": TORCH_PEERS, **sizes}
    own, subject, decoder, model, sampled = make(tiny, **options)
    assert subject.config.family == family
    with other_libraries.start(decoder, subject, sampled, own) as (processes, absent):
        assert not absent and [sampled.num_prompts(name) for name in processes] == [5, 9]
        found = agreement.measure(model, sampled, own, processes)
    assert {name: other["prompts"] for name, other in found.items()} == {"torch_one": 3, "torch_cached": 3}
    return [other["max_abs_difference"] for other in found.values()]


def test_every_family_is_here():
    assert set(SHAPES) == set(registry.LANGUAGE_MODELS)


@pytest.mark.parametrize("family", SHAPES)
def test_pytorch_has_the_same_model(tiny, in_process, family):
    assert max(distances(tiny, family)) < 1e-4


def test_a_prompt_without_prefix(tiny, in_process):
    own, subject, decoder, model, sampled = make(tiny, peers=TORCH_PEERS, prefix_tokens=0)
    with other_libraries.start(decoder, subject, sampled, own) as (processes, _):
        found = agreement.measure(model, sampled, own, processes)
    assert max(other["max_abs_difference"] for other in found.values()) < 1e-4


@pytest.mark.parametrize(
    "family, other",
    [
        ("llama", {"rope_theta": 1e3}),
        ("gemma2", {"final_logit_softcapping": 3.0}),
        ("gemma3_text", {"sliding_window": 400}),
    ],
)
def test_another_model_is_found_out(tiny, in_process, monkeypatch, family, other):
    export = other_libraries.export

    def spoil(folder, *arguments, **options):
        export(folder, *arguments, **options)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | other))

    monkeypatch.setattr(other_libraries, "export", spoil)
    assert min(distances(tiny, family)) > 1e-3


@pytest.mark.parametrize(
    ("installed", "in_file", "names", "reason"),
    [
        (True, False, ("llama_cached",), "llama.cpp reads GGUF files and option gguf names none"),
        (False, True, ("llama_cached",), "llama-cpp-python is not installed and option llama_python"),
        (False, False, TORCH_PEERS, "PyTorch is not installed"),
        (True, False, TORCH_PEERS, "rope_freqs.weight"),
    ],
)
def test_absent_peers_have_their_reasons(tiny, llama_file, monkeypatch, installed, in_file, names, reason):
    monkeypatch.setattr(peer_process.Library, "installed", lambda library: installed)
    given = {**shapeless(tiny), "gguf": str(llama_file)} if in_file else tiny
    own, subject, decoder, _, sampled = make(given, peers=names)
    monkeypatch.setitem(subject.hf, "rope_factors", [1.0, 2.0])  # Which transformers could not divide by.
    with other_libraries.start(decoder, subject, sampled, own) as (processes, absent):
        assert set(absent) == {*names} and not processes
        assert all(reason in told for told in absent.values())


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A library whose process does as the test's module says."""

    def make(code):
        (tmp_path / "broken_peer.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return peer_process.Library("Broken", "broken", "broken_peer")

    return make


ANSWERS = """
from knnprompt_jax.benchmark import answering
class Peers:
    def works(self, much): print("no answer")
    def fails(self): raise ValueError("so\\nmuch")
answering.serve(Peers())
"""


def test_a_process_answers_and_fails_in_one_line(broken):
    with peer_process.start(broken(ANSWERS)) as process:
        assert process.ask("works", much=3) > 0
        with pytest.raises(
            errors.UserError, match="^Broken, fails: ValueError: so much; leave it out with --config.peers$"
        ):
            process.ask("fails")


@pytest.mark.parametrize("code", ["import nowhere", "import sys; sys.stdin.readline(); import nowhere"])
def test_a_process_that_ends(broken, code):
    with (
        peer_process.start(broken(code)) as process,
        pytest.raises(errors.UserError, match=r"Broken, load: its process ended with status 1 \(ModuleNotFoundError"),
    ):
        process.ask("load")


def test_a_python_that_is_not_there(broken):
    with (
        pytest.raises(errors.UserError, match="Broken: cannot run '/nowhere/python': No such file"),
        peer_process.start(broken(""), "/nowhere/python"),
    ):
        raise AssertionError


def test_libraries_of_the_other_python_come_first(broken, tmp_path):
    """What lies beside this package is found last, and found all the same."""
    code = "import sys\nsys.exit(str(sys.path[-1]))"
    with peer_process.start(broken(code), sys.executable) as process, pytest.raises(errors.UserError) as caught:
        process.ask("load")
    assert str(peer_process.pathlib.Path(peer_process.knnprompt_jax.__file__).parents[1]) in str(caught.value)


def shapeless(tiny):
    """The settings without sizes, which a file brings."""
    return {name: value for name, value in tiny.items() if name not in ("width", "layers", "heads", "vocab_size")}
