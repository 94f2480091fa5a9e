"""Every mode runs and its record is JSON. No test looks at speeds."""

import importlib.util
import json

import numpy as np
import pytest

from knnprompt_jax import errors, states
from knnprompt_jax.benchmark import construction, job, peers, report, settings
from knnprompt_jax.planning import workload
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import representations


def run(options, tmp_path, **others):
    """Return the record read back from its file, and the report."""
    result = job.run(settings.BenchmarkSettings(**options | others, output=str(tmp_path)))
    path = report.write(tmp_path, result)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    found = json.loads(path.read_text())
    assert {"command", "date", "device", "versions"} <= set(found["environment"])
    return found, report.render(found)


def test_construction_with_every_peer(small, tmp_path):
    record, text = run(small, tmp_path, mode="construction", peers=tuple(settings.PEERS))
    found = record["construction"]
    work, with_torch = found["workload"], importlib.util.find_spec("torch") is not None
    assert all(found[name] > 0 for name in ("compile_seconds", "peak_bytes", "share_of_peak", "share_of_widths"))
    assert 0 < found["packed_tokens"] <= work["suffix_tokens"] and 0 < found["fill"] <= 1
    assert found["compilations"] == 2 and work["anchors"] == 23  # Compiled: the prefix and the suffixes.
    needed_per_anchor = found["flops_needed"] / 23
    assert found["flops_per_second"] == pytest.approx(needed_per_anchor * found["anchors_per_second"], rel=1e-6)
    in_torch = {"torch_one": 4, "torch_cached": 3} if with_torch else {}
    assert set(found["peers"]) == {"ours", "jax_one", "jax_batched", *in_torch}
    assert found["peers"]["jax_one"]["prompts"] == 5 and found["peers"]["ours"]["ours_is_times_faster"] == 1
    assert all(len(turns) == 2 for turns in found["seconds"].values())
    assert {name: other["prompts"] for name, other in found["agreement"].items()} == in_torch
    assert all(other["max_abs_difference"] < 1e-4 for other in found["agreement"].values())
    assert "Without llama.cpp" in text and "JAX, one full prompt at a time" in text and "search" not in record


@pytest.mark.parametrize("distance", ["forward", "released", "partial_raw_released", "hidden"])
def test_search(small, tmp_path, distance):
    record, text = run(small, tmp_path, mode="search", distance=distance)
    rows = record["search"]["rows"]
    assert [(row["kind"], row["anchors"], row["queries"]) for row in rows] == [
        ("dense", 1024, 5),
        ("factored", 1024, 5),
    ]
    installed = [name for name in ("numpy", "faiss", "sklearn") if importlib.util.find_spec(name)]
    for row in rows:
        assert row["bound"] in ("bandwidth", "matrix products") and row["share_of_bound"] > 0
        assert row["bytes"] == 1024 * (row["bytes_per_anchor"] + 4) and row["search_bytes"] > 0
        assert list(row["queries_per_second"]) == ["states", "kernel", *installed]
    if distance == "forward":
        assert [row["bytes_per_anchor"] for row in rows] == [4 * 5120, 4 * 257]
        assert [row["flops"] for row in rows] == [2 * 5 * 1024 * width for width in (5120, 256)]
    assert f"Search ({distance})" in text and "NumPy product" in text


def test_a_store_that_is_too_large(small):
    with pytest.raises(errors.UserError, match="a dense store of 1024 anchors takes 0.0210 GB: --max_store_gb=0.0001"):
        job.run(settings.BenchmarkSettings(**small, max_store_gb=1e-4, mode="search"))


def test_peers_in_jax_compute_our_distributions(small):
    own = settings.BenchmarkSettings(**small)
    subject = workload.describe(own.model)
    work = workload.make(own, subject, own.anchors)
    weights, model = construction.load(own, subject, work.tokenizer)
    sampled = peers.sample(work.largest, own)
    group = layout.PromptGroup(
        sampled.prefix_P, tuple(tokens[len(sampled.prefix_P) :] for tokens in sampled.prompts), np.arange(5)
    )
    read = states.read(model, layout.Prompts((group,), num_prompts=5))
    ours_NV = np.asarray(representations.log_probabilities(model.head, read))
    for size, every_token in ((1, True), (3, False)):
        theirs = peers.read_without_prefix(weights, sampled.prompts, size, every_token)
        np.testing.assert_allclose(np.concatenate(theirs), ours_NV, atol=1e-5)


def test_a_published_shape_has_random_weights_and_the_stand_in_counts_its_tokens(small, monkeypatch):
    own = settings.BenchmarkSettings(**small | {"model": "opt-125m", "dtype": "bfloat16"})
    subject = workload.describe(own.model)
    weights, model = construction.load(own, subject, ())
    assert model.dtype == "bfloat16" and subject.path is None and model.config.num_layers == 12
    kernel = np.asarray(weights.blocks.mlp.up_kernel[...], np.float32)
    assert kernel.std() == pytest.approx(0.02, rel=0.1) and not np.array_equal(kernel[0], kernel[1])


def test_samples_have_the_mix_of_lengths(small):
    rng, prefix_P = np.random.default_rng(0), np.arange(37)
    group = layout.PromptGroup(
        prefix_P, tuple(np.arange(length) for length in rng.integers(1, 60, 997)), np.arange(997)
    )
    own = settings.BenchmarkSettings(**small | {"peer_prompts": 20, "peer_suffixes": 100, "peer_batch": 10})
    sampled, mean = peers.sample(group, own), np.mean([len(suffix) for suffix in group.suffixes])
    assert len(sampled.prompts) == 20 and sampled.num_prompts("torch_cached") == 100 and len(sampled.batches) == 10
    assert np.mean([len(tokens) for tokens in sampled.prompts]) == pytest.approx(37 + mean, rel=0.03)
    assert np.mean([len(suffix) for batch in sampled.batches for suffix in batch]) == pytest.approx(mean, rel=0.05)
    assert all(np.array_equal(tokens[:37], prefix_P) for tokens in sampled.prompts)
