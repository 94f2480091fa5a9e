"""The benchmark of the search runs and its record is JSON. No test looks at speeds."""

import importlib.util

import pytest

from knnprompt_jax.devices import device_report, machine
from tools import benchmark_search, draw_growth

SMALL = {"model": "tiny", "queries": (5,), "stored": (1024,), "repetitions": 2}
TIMED = ("labels", "time_of_products", "from_keys", "share_of_bound", "share_of_product", "numpy", "sklearn")


@pytest.mark.parametrize("distance", ["kl", "l2", pytest.param("reverse_kl", marks=pytest.mark.long)])
def test_search(tmp_path, monkeypatch, distance):
    monkeypatch.setattr(machine, "_SIDE_ON_CPU", 64)
    settings = benchmark_search.SearchSettings(**SMALL, distance=distance, output=str(tmp_path))
    result = benchmark_search.run(settings)
    rows = result["queries_per_second"]
    shapes = [(row["store"], row["anchors"], row["queries"]) for row in rows]
    assert shapes == [("dense", 1024, 5), ("factored", 1024, 5)]
    for row in rows:
        assert row["mb_in_search"] > 0
        assert all(row[name] > 0 for name in TIMED)
        for library, names in {"torch": ["torch"], "faiss": ["faiss_ip", "faiss_l2"]}.items():
            assert all((row[name] == "-") == (importlib.util.find_spec(library) is None) for name in names)
        assert row["recall_by_product"] > 0.99
    if distance == "kl":
        assert [round(1e6 * row["mb"]) for row in rows] == [1024 * (4 * 5121 + 4), 1024 * (4 * 257 + 4)]
    text = device_report.render(result)
    assert "share of bound" in text
    assert distance in text
    device_report.write(tmp_path / "search.json", settings, result)
    draw_growth.draw(tmp_path / "search.json", tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
