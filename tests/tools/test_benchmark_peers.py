"""Other libraries compute our distributions in processes of their own; one that cannot run has its reason."""

import numpy as np
import pytest

from knnprompt_jax.devices import machine, workload
from knnprompt_jax.inference import lm
from knnprompt_jax.models import registry
from tests import prompt_groups, random_weights
from tools import benchmark_peers, peer_process

SMALL = {"model": "tiny", "batch": 256, "anchors": 23, "shots": 20, "demo_shots": 1, "repetitions": 2}
FEW = {"peer_prompts": 5, "peer_suffixes": 9, "peer_batch": 3}
SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "num_hidden_layers": 2, "head_dim": 6}
SIZES |= {"vocab_size": 101, "intermediate_size": 67, "sliding_window": 29}


def make_group(prefix, vocabulary=101):
    rng = np.random.default_rng(1)
    suffixes = tuple(rng.integers(0, vocabulary, length) for length in rng.integers(1, 13, 23))
    return prompt_groups.make_group(suffixes, rng.integers(0, vocabulary, prefix))


def test_construction_beside_pytorch(monkeypatch):
    """llama.cpp is absent: the model has no GGUF file."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(machine, "_SIDE_ON_CPU", 64)
    found = benchmark_peers.run(benchmark_peers.PeerSettings(**SMALL, **FEW))
    rows = {row["peer"]: row for row in found["peers"]}
    one, cached, llama = benchmark_peers.PROCEDURES.values()
    assert {peer: row["prompts_per_turn"] for peer, row in rows.items()} == {"ours": 23, one: 5, cached: 9}
    for title in (one, cached):
        rates = found["anchors_per_second"] / rows[title]["prompts_per_second"]
        assert rows[title]["ours_is_times_faster"] == pytest.approx(rates)
        assert rows[title]["largest_difference"] < 1e-4
    assert found["absent"] == [{"without": llama, "reason": "llama.cpp reads GGUF files and --model names none"}]


@pytest.mark.parametrize("prefix", [37, 0])
def test_peers_compute_our_distributions(monkeypatch, prefix):
    """Large weights, so that all of a small model matters; some layers have a window shorter than the prefix."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(
        peer_process.PeerProcess, "call", lambda peer, *given, **named: peer_process.call(peer.module, *given, **named)
    )
    hf = {**registry.PUBLISHED["google/gemma-3-270m"], **SIZES}
    subject = workload.ModelShape("small", hf, registry.config_from_hf(hf), None)
    weights = random_weights.make(subject.config, 0, (0.1, 0.2, 0.2))
    model = lm.LanguageModel.from_decoder(weights, (), name="small")
    own = benchmark_peers.PeerSettings(**SMALL, **FEW, peers=("torch_one", "torch_cached"))
    sampled = benchmark_peers.sample(make_group(prefix), own)
    with benchmark_peers.start_all(weights, subject, sampled, own) as (running, absent):
        found = {name: benchmark_peers.compare(model, sampled, name, process) for name, process in running.items()}
    assert not absent and list(found) == ["torch_one", "torch_cached"]
    assert max(each["largest_difference"] for each in found.values()) < 1e-4
    assert max(each["largest_kl"] for each in found.values()) < 1e-6
