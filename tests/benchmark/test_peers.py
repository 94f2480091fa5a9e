"""PyTorch's procedures compute our distributions; a library that cannot run has its reason."""

import numpy as np
import pytest

from knnprompt_jax import errors, lm
from knnprompt_jax.benchmark import construction, peer_process, peers, workload
from knnprompt_jax.models import registry
from knnprompt_jax.settings import benchmark as settings
from tests import prompt_groups, random_weights

SIZES = {
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 101,
    "head_dim": 6,
    "intermediate_size": 67,
    "sliding_window": 29,
}


def make_group(prefix, vocabulary=101):
    rng = np.random.default_rng(1)
    suffixes = tuple(rng.integers(0, vocabulary, length) for length in rng.integers(1, 13, 23))
    return prompt_groups.make_group(suffixes, rng.integers(0, vocabulary, prefix))


@pytest.mark.parametrize("prefix", [37, 0])
def test_peers_compute_our_distributions(small, monkeypatch, prefix):
    """Large weights, so that all of a small model matters; some layers have a window shorter than the prefix."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(
        peers.PeerProcess, "call", lambda peer, *given, **named: peer_process.call(peer.module, *given, **named)
    )
    hf = {**registry.PUBLISHED["google/gemma-3-270m"], **SIZES}
    subject = workload.ModelShape("small", hf, registry.config_from_hf(hf), None)
    weights = random_weights.make(subject.config, 0, (0.1, 0.2, 0.2))
    model = lm.LanguageModel.from_decoder(weights, (), name="small")
    own = settings.BenchmarkSettings(**small | {"peers": ("torch_one", "torch_cached")})
    sampled = peers.sample(make_group(prefix), own)
    with peers.start_all([peers.TORCH], weights, subject, sampled, own) as (running, absent):
        found = construction.compare(model, sampled, running)
    assert not absent
    assert list(found) == ["torch_one", "torch_cached"]
    assert max(each["largest_difference"] for each in found.values()) < 1e-4
    assert max(each["largest_kl"] for each in found.values()) < 1e-6


def test_a_library_that_cannot_run_has_its_reason(small):
    own = settings.BenchmarkSettings(**small | {"peers": ("torch_one",)})
    subject = workload.describe("tiny")
    subject.hf["rope_factors"] = [1.0, 2.0]
    with peers.start_all([peers.TORCH], None, subject, peers.sample(make_group(37), own), own) as (running, absent):
        assert not running
        assert absent == {"torch_one": "transformers does not support the rope_freqs.weight of this file"}


def test_a_peer_with_another_vocabulary_is_refused(small, monkeypatch):
    model = lm.LanguageModel.from_pretrained("tiny")
    own = settings.BenchmarkSettings(**small)
    sampled = peers.sample(make_group(37), own)
    process = peers.PeerProcess("Other", "nowhere")
    monkeypatch.setattr(process, "call", lambda *_, **__: (0.0, [np.zeros((9, 7))]))
    with pytest.raises(errors.UserError, match="Other, torch_cached: it has 7 tokens; the model has 5120"):
        construction.compare(model, sampled, {"torch_cached": process})
