"""A shape so small that every mode ends in seconds."""

import pytest

TINY = {
    **{"width": 20, "layers": 3, "heads": 5, "vocab_size": 101, "batch": 256},
    **{"anchors": 23, "prefix_tokens": 37, "suffix_tokens": 7.0},
    **{"repetitions": 2, "ceiling_side": 64, "peers": ("jax_one", "jax_batched")},
    **{"peer_prompts": 5, "peer_suffixes": 9, "peer_batch": 3, "agreement": 3},
    **{"queries": (1, 5), "max_anchors": 1024, "growth_anchors": (11, 23), "growth_prefixes": (0, 13)},
}


@pytest.fixture
def tiny() -> dict:
    """Settings of a benchmark of next to nothing."""
    return dict(TINY)
