"""Small models, so that every mode ends in seconds."""

import pytest

from knnprompt_jax.benchmark import timing

SMALL = {
    **{"model": "tiny", "batch": 256, "anchors": 23, "shots": 20, "demo_shots": 1},
    **{"repetitions": 2, "peers": ("jax_one", "jax_batched"), "queries": (5,), "stored": (1024,)},
    **{"peer_prompts": 5, "peer_suffixes": 9, "peer_batch": 3},
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict:
    """Options of a small benchmark, with small matrix products."""
    monkeypatch.setattr(timing, "_SIDE_ON_CPU", 64)
    return dict(SMALL)
