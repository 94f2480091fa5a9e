"""Every mode runs and its record is JSON. No test looks at speeds."""

import importlib.util
import json

import numpy as np
import pytest

from knnprompt_jax import errors
from knnprompt_jax.benchmark import construction, job
from knnprompt_jax.planning import report, workload
from knnprompt_jax.settings import planning as settings
from tools import draw_growth


def run(options, tmp_path, **others):
    """Return the record read back from its file, and the report."""
    own = settings.BenchmarkSettings(**options | others, output=str(tmp_path))
    result = job.run(own)
    path = report.write(own.output, "benchmark", own, result)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    found = json.loads(path.read_text())
    assert {"command", "date", "versions", "host"} <= set(found)
    return found, report.render(result)


def test_more_neighbours_than_anchors_are_refused_at_once():
    with pytest.raises(errors.UserError, match="--k=100: the smallest store has 64 anchors"):
        settings.BenchmarkSettings(k=100, stored=(1024, 64))


def test_a_search_without_a_store_is_refused_before_construction(small, tmp_path, monkeypatch):
    monkeypatch.setitem(job._MODES, "construction", None)
    with pytest.raises(errors.UserError, match=r"--max_store_gb=1e-06: no store of \(1024,\) anchors is smaller"):
        run(small, tmp_path, max_store_gb=1e-6)


def test_construction_with_every_peer(small, tmp_path):
    record, text = run(small, tmp_path, mode="construction", peers=tuple(settings.PEERS))
    found, with_torch = record["construction"], importlib.util.find_spec("torch") is not None
    assert found["anchors"] == 23 and found["compilations"] == 2  # The prefix and the suffixes.
    assert all(found[name] > 0 for name in ("compile_seconds", "share_of_peak", "needed_gflop_per_second"))
    assert 0 < found["packed_tokens_of_suffix_tokens"] <= 1 and 0 < found["packed_slots_used"] <= 1
    in_torch = {"torch_one": 5, "torch_cached": 9} if with_torch else {}
    names = {"ours": 23, "jax_one": 5, "jax_batched": 5, **in_torch}
    by_title = {row["peer"]: row for row in found["peers"]}
    assert {name: by_title[settings.PEERS.get(name, name)]["prompts_per_turn"] for name in names} == names
    assert len(by_title) == len(names) and by_title["ours"]["ours_is_times_faster"] == 1
    assert all(by_title[settings.PEERS[name]]["largest_difference"] < 1e-4 for name in in_torch)
    assert "llama.cpp reads GGUF files" in text and "JAX, one full prompt at a time" in text and "search" not in record


@pytest.mark.parametrize(
    "distance",
    [
        "kl",
        "l2",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("reverse_kl", "reverse_kl_labels")),
    ],
)
def test_search(small, tmp_path, distance):
    record, text = run(small, tmp_path, mode="search", distance=distance)
    rows = record["search"]["queries_per_second"]
    shapes = [(row["store"], row["anchors"], row["queries"]) for row in rows]
    assert shapes == [("dense", 1024, 5), ("factored", 1024, 5)]
    timed = ["labels", "time_of_products", "from_keys", "share_of_bound", "share_of_product", "numpy", "sklearn"]
    for row in rows:
        assert row["mb_in_search"] > 0 and all(row[name] > 0 for name in timed)
        peers = {"torch": ["torch"], "faiss": ["faiss_ip", "faiss_l2"]}
        for library, names in peers.items():
            assert all((row[name] == "-") == (importlib.util.find_spec(library) is None) for name in names)
        assert row["recall_by_product"] > 0.99 and 0 <= row["recall_by_l2"] <= 1
    if distance == "kl":
        assert [round(1e6 * row["mb"]) for row in rows] == [1024 * (4 * 5120 + 4), 1024 * (4 * 257 + 4)]
    assert "share of bound" in text and distance in text
    draw_growth.draw(next(tmp_path.iterdir()), tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_too_large_stores(small):
    with pytest.raises(errors.UserError, match="--max_store_gb=0.0001: no store of .* is smaller"):
        job.run(settings.BenchmarkSettings(**small, max_store_gb=1e-4, mode="search"))


def test_a_published_shape_has_random_weights(small):
    own = settings.BenchmarkSettings(**small | {"model": "EleutherAI/pythia-70m", "dtype": "bfloat16"})
    subject = workload.describe(own.model)
    model = construction.load(own, subject, ())
    assert model.dtype == "bfloat16" and subject.path is None and model.config.num_layers == 6
    kernel = np.asarray(model.execution.decoder.blocks.mlp.up_kernel[...], np.float32)
    assert kernel.std() == pytest.approx(0.02, rel=0.1) and not np.array_equal(kernel[0], kernel[1])
