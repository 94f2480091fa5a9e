"""Every mode runs, finds what it says it finds, and its record is JSON; nothing here looks at how fast anything was."""

import importlib.util
import json

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.benchmark import jax_peers, job, peers, report, settings, subjects, workloads
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import representations

torch_installed = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")


def run(options, tmp_path, **others):
    """The record as read back from its file, and the report."""
    result = job.run(settings.BenchmarkSettings(**options | others, output=str(tmp_path)))
    path = report.write(tmp_path, result)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    found = json.loads(path.read_text())
    assert {"environment", "settings", "model"} < set(found)
    assert {"command", "date", "device", "versions"} <= set(found["environment"])
    return found, report.render(found)


def positive(numbers, *names):
    return all(numbers[name] > 0 for name in names)


def test_construction(tiny, tmp_path):
    record, text = run(tiny, tmp_path, mode="construction", peers=(*tiny["peers"], "llama_cached"))
    found = record["construction"]
    assert positive(
        found, "anchors_per_second", "suffix_tokens_per_second", "flops_per_second", "peak_flops_per_second"
    )
    assert positive(found, "compile_seconds", "peak_bytes", "share_of_peak", "share_of_peak_all_blocks")
    assert 0 < found["packed_tokens"] <= found["workload"]["suffix_tokens"]
    assert 0 < found["fill"] <= 1 and found["compilations"] == 2  # One of the prefix, one of the suffixes.
    assert found["workload"]["anchors"] == 23 and found["workload"]["prefix_tokens"] == 37
    assert found["flops_per_second"] == pytest.approx(
        found["flops_needed"] * found["anchors_per_second"] / 23, rel=1e-6
    )
    assert set(found["peers"]) == {"ours", "jax_one", "jax_batched"}
    assert found["peers"]["jax_one"]["prompts"] == 5 and found["peers"]["ours"]["ours_is_times_faster"] == 1
    assert all(len(turns) == 2 for turns in found["seconds"].values())
    assert found["share_of_widths"] >= found["share_of_peak"] and found["agreement"] == found["llama"] == {}
    assert set(found["absent"]) == {"llama_cached"} and "Without llama.cpp, cached prefix" in text
    assert "anchors/s" in text and "JAX, one full prompt at a time" in text and "growth" not in record


@torch_installed
def test_peers_in_a_process_of_pytorch(tiny, tmp_path):
    record, text = run(tiny, tmp_path, mode="construction", peers=("torch_one", "torch_cached"), repetitions=1)
    found = record["construction"]
    assert found["peers"]["torch_one"]["prompts"] == 5 and found["peers"]["torch_cached"]["prompts"] == 9
    assert {name: other["prompts"] for name, other in found["agreement"].items()} == {"torch_one": 3, "torch_cached": 3}
    assert all(other["max_abs_difference"] < 1e-4 for other in found["agreement"].values())
    assert "3 prompts with the same weights differ by" in text


@pytest.mark.parametrize("distance", ["forward", "released"])
def test_search(tiny, tmp_path, distance):
    record, text = run(tiny, tmp_path, mode="search", distance=distance)
    found = record["search"]
    assert positive(found, "peak_flops_per_second", "bytes_per_second")
    sizes = [(row["kind"], row["anchors"], row["queries"], row["bytes_per_anchor"]) for row in found["rows"]]
    dense, factored = 4 * 101, 4 * (20 + 1) * (2 if distance == "released" else 1)
    assert sizes == [
        *[("dense", 1024, queries, dense) for queries in (1, 5)],
        *[("factored", 1024, queries, factored) for queries in (1, 5)],
    ]
    for row in found["rows"]:
        assert row["bytes"] == 1024 * (row["bytes_per_anchor"] + 4) and row["search_bytes"] > 0
        assert row["bytes_read"] == 1024 * 4 * (101 if row["kind"] == "dense" else 21)
        assert row["flops"] == row["queries"] * 2 * 1024 * (101 if row["kind"] == "dense" else 20)
        assert row["bound"] in ("bandwidth", "matrix products") and positive(row, "share_of_bound")
        assert set(row["queries_per_second"]) == {"states", "kernel", "numpy"}
    assert "NumPy product" in text


def test_growth(tiny, tmp_path):
    record, text = run(tiny, tmp_path, mode="growth")
    found = record["growth"]
    assert [(row["anchors"], row["prefix_tokens"]) for row in found["anchors"]] == [(11, 37), (23, 37)]
    assert [(row["anchors"], row["prefix_tokens"]) for row in found["prefix_tokens"]] == [(11, 0), (11, 13)]
    for row in found["anchors"] + found["prefix_tokens"]:
        assert row["ms_per_anchor"] == pytest.approx(1e3 / row["anchors_per_second"]) and row["gflop_per_anchor"] > 0
    # Numbers of anchors share a shape: three of suffixes, and of prefixes two, since 13 and 37 tokens are padded alike.
    assert found["compilations"] == 5
    assert "ms per anchor" in text


def test_peers_in_jax_compute_what_ours_computes(tiny):
    own = settings.BenchmarkSettings(**tiny)
    subject = subjects.choose(own)
    decoder, model = workloads.language_model(own, subject)
    sampled = peers.sample(workloads.make(own, subject), own)
    group = layout.PromptGroup(sampled.prefix_P, tuple(tokens[37:] for tokens in sampled.prompts), np.arange(5))
    states = model.states(layout.Prompts((group,), num_prompts=5))
    ours_NV = np.asarray(representations.log_probabilities(model.head, states))
    np.testing.assert_allclose(np.stack(jax_peers.one_at_a_time(decoder, sampled.prompts)), ours_NV, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(jax_peers.in_batches(decoder, sampled.prompts, 3)), ours_NV, atol=1e-5)


@pytest.mark.parametrize("distance", ["partial_raw_released", "hidden"])
def test_search_by_other_distances(tiny, tmp_path, distance):
    record, text = run(tiny, tmp_path, mode="search", distance=distance, queries=(5,))
    assert [row["kind"] for row in record["search"]["rows"]] == ["dense", "factored"]
    assert f"Search ({distance})" in text


def test_stores_that_cannot_be(tiny):
    with pytest.raises(errors.UserError, match="a dense store of 1024 anchors takes 0.0004 GB"):
        job.run(settings.BenchmarkSettings(**tiny, max_store_gb=1e-4, mode="search"))
