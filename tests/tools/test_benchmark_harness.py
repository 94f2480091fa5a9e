"""The benchmark of lm-evaluation-harness scores the same requests with both models."""

import pytest

pytest.importorskip("lm_eval", reason="the extra harness")
pytest.importorskip("torch", reason="the harness's own model")
pytest.importorskip("accelerate", reason="the harness's own model")
from tools import benchmark_harness  # noqa: E402


def test_both_models_score_every_class_of_every_row():
    result = benchmark_harness.run(benchmark_harness.HarnessSettings(model="tiny", rows=3, demonstrations=2))
    assert result["scores"] == 3 * 6
    assert result["largest_difference_in_nats"] < 1e-4
    assert [row["lm_eval_model"] for row in result["speed"]] == ["knnprompt", "hf"]
    assert all(row["seconds"] > 0 for row in result["speed"])
