"""A benchmark of the construction runs and its record is JSON. No test looks at speeds."""

import json

import jax
import pytest

from knnprompt_jax.benchmark import construction, report, timing
from knnprompt_jax.settings import benchmark as settings


def test_construction_beside_pytorch(small, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    own = settings.BenchmarkSettings(**small | {"peers": tuple(settings.PEERS)}, output=str(tmp_path))
    result = report.describe_machine() | construction.run(own)
    path = report.write(own.output, "benchmark", own, result)
    assert list(tmp_path.iterdir()) == [path]
    found = json.loads(path.read_text())
    assert {"command", "date", "versions", "host"} <= set(found)
    assert found["anchors"] == 23
    assert found["compilations"] == 2  # The prefix and the suffixes.
    assert all(found[name] > 0 for name in ("compile_seconds", "share_of_peak", "required_gflop_per_second"))
    assert 0 < found["packed_tokens_of_suffix_tokens"] <= 1
    assert 0 < found["packed_slots_used"] <= 1
    rows = {row["peer"]: row for row in found["peers"]}
    one, cached = settings.PEERS.values()
    assert {peer: row["prompts_per_turn"] for peer, row in rows.items()} == {"ours": 23, one: 5, cached: 9}
    for title in (one, cached):
        rates = found["anchors_per_second"] / rows[title]["prompts_per_second"]
        assert rows[title]["ours_is_times_faster"] == pytest.approx(rates)
        assert rows[title]["largest_difference"] < 1e-4
    text = report.render(result)
    assert "anchors per second" in text
    assert one in text


def test_the_rate_of_ours_stands_beside_those_of_peers(small, tmp_path):
    """Without peers the table has one row, ours."""
    result = construction.run(settings.BenchmarkSettings(**small, output=str(tmp_path)))
    assert [row["peer"] for row in result["peers"]] == ["ours"]
    assert result["peers"][0]["prompts_per_second"] == result["anchors_per_second"]
    assert result["absent"] == []


@pytest.mark.parametrize(("backend", "speed"), [("cpu", 7.0), ("gpu", 35.0)])
def test_cpu_devices_of_a_process_share_its_cores(backend, speed, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert timing.speed_of_all(7.0, num_devices=5) == speed
