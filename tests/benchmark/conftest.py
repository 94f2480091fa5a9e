"""Options of a benchmark that takes seconds."""

import pytest

from knnprompt_jax.benchmark import timing


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict:
    """Options of a small benchmark, with small matrix products."""
    monkeypatch.setattr(timing, "_SIDE_ON_CPU", 64)
    return {
        "model": "tiny",
        "batch": 256,
        "anchors": 23,
        "shots": 20,
        "demo_shots": 1,
        "repetitions": 2,
        "peers": (),
        "peer_prompts": 5,
        "peer_suffixes": 9,
        "peer_batch": 3,
    }
