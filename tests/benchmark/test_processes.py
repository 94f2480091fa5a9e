"""Peers compute our distributions, PyTorch in a process of its own; a missing or failing library is one line."""

import numpy as np
import pytest

from knnprompt_jax import errors, lm
from knnprompt_jax.benchmark import answering, construction, peers
from knnprompt_jax.models import registry
from knnprompt_jax.planning import workload
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import planning as settings
from tests import random_weights

SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2, "vocab_size": 101}
SIZES |= {"head_dim": 6, "intermediate_size": 67, "sliding_window": 29}


def make_group(prefix, vocabulary=101):
    rng = np.random.default_rng(1)
    suffixes = tuple(rng.integers(0, vocabulary, length) for length in rng.integers(1, 13, 23))
    return layout.PromptGroup(rng.integers(0, vocabulary, prefix), suffixes, np.arange(23))


@pytest.mark.parametrize(("shape", "kv_heads", "prefix"), [("google/gemma-3-270m", 1, 37), ("Qwen/Qwen3-0.6B", 2, 0)])
def test_peers_compute_our_distributions(small, monkeypatch, shape, kv_heads, prefix):
    """Large weights, so that all of a small model matters. One has windows in most layers."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(
        peers.PeerProcess, "ask", lambda peer, *given, **named: answering.call(peer.module, *given, **named)
    )
    hf = {**registry.PUBLISHED[shape], **SIZES, "num_key_value_heads": kv_heads}
    subject = workload.Subject(shape, hf, registry.config_from_hf(hf), None)
    weights = random_weights.make(subject.config, 0, (0.1, 0.2, 0.2))
    model = lm.LanguageModel.from_decoder(weights, (), name=shape)
    own = settings.BenchmarkSettings(**small | {"peers": ("torch_one", "torch_cached")})
    sampled = peers.sample(make_group(prefix), own)
    with peers.start_all(weights, subject, sampled, own) as (running, absent):
        found = construction.compare(model, sampled, running)
        _, in_torch = running["torch_one"].ask("torch_one", is_wanted=True)
    for size, every_token in ((1, True), (3, False)):
        in_jax = peers.read_without_prefix(weights, sampled.prompts, size, every_token)
        np.testing.assert_allclose(np.concatenate(in_jax), np.concatenate(in_torch), atol=1e-4)
    assert not absent and list(found) == ["torch_one", "torch_cached"]
    assert max(each["largest_difference"] for each in found.values()) < 1e-4


def test_absent_peers_have_their_reasons(small):
    own, subject = (
        settings.BenchmarkSettings(**small | {"peers": ("torch_one", "llama_cached")}),
        workload.describe("tiny"),
    )
    subject.hf["rope_factors"] = [1.0, 2.0]
    with peers.start_all(None, subject, peers.sample(make_group(37), own), own) as (running, absent):
        assert not running and "rope_freqs.weight" in absent["torch_one"] and "reads GGUF" in absent["llama_cached"]


def test_a_process_answers_and_fails_in_one_line(tmp_path, monkeypatch):
    code = """import os
class Peers:
    works = lambda peers, much: 2 * much
    dies = lambda peers: os._exit(3)
    def fails(self): raise ValueError("so\\nmuch")
"""
    (tmp_path / "broken_peers.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    process = peers.PeerProcess("Broken", "broken_peers")
    with process.pool:
        seconds, result = process.ask("works", much=3, is_wanted=True)
        assert 0 < seconds < 60 and result == 6
        with pytest.raises(errors.UserError, match="^Broken, fails: ValueError: so much; leave it out with --peers$"):
            process.ask("fails")
        with pytest.raises(errors.UserError, match="^Broken, dies: BrokenProcessPool: A process in the process pool"):
            process.ask("dies")
    process = peers.PeerProcess("Missing", "nowhere")
    with process.pool, pytest.raises(errors.UserError, match="Missing, load: ModuleNotFoundError: No module named"):
        process.ask("load")
