"""The table that a comparison prints, from records made by hand."""

import dataclasses

import pytest

from knnprompt_jax.report import records
from knnprompt_jax.study import comparison
from tests.study.small_world import make_record


def record(method: str, seed: int, accuracy: float, **fields: object) -> records.Record:
    times = {"seconds": {"language_model": 2.0 * seed, "method": 0.5 * seed}, "lm_tokens": 1000 * seed}
    times["prompts_per_second"] = 100.0
    fields |= {"method": method, "seed": seed, "accuracy": accuracy, "prompts": 30, "truncated_prompts": 3}
    return make_record(**fields, **times)


def test_of_a_comparison():
    chosen = {"note": "best of 2, CHOSEN", "candidates": (0.75, 0.25)}
    done = [
        *(record("icl", seed, 0.25) for seed in (1, 2)),
        record("noisy_channel", 1, 0.75, **chosen),
        record("noisy_channel", 2, 0.75, note="best of 3", candidates=(0.75, 0.5)),
    ]
    text = " ".join(comparison.describe_comparison(done).split())
    for expected in (
        "4 test rows (most common class: 50.0 %), 2 seeds",
        "up to 7 train rows per class: ",
        "In-context learning 25.0 ± 0.0 1,500",
        "Noisy channel 75.0 ± 0.0 1,500",
        "· mean of its 2 56.2 ± 8.8",
        "Noisy channel, seed 1: best of 2, CHOSEN.",
        "The model read about 600 prompts in 6.00 seconds (100.0 prompts/s).",
        "Mean ± standard deviation over seeds. LM tokens are per seed",
        "Noisy channel: 6 of 60 prompts truncated (10.0 %).",
    ):
        assert expected in text
    assert "best of 3" not in text


@pytest.mark.parametrize(
    ("method", "seconds", "demo_shots", "expected"),
    [
        ("knn", (0, 0), 2, "All prompts were in the cache"),
        ("knn", (0, 4), 2, "read about 400 prompts in 4.00 seconds (100.0 prompts/s)"),
        ("knn", (2, 2), 0, "read about 200 prompts in 2.00 seconds"),  # All seeds share one pass.
        ("tfidf", (0, 0), 2, "Mean ± standard deviation"),
    ],
)
def test_the_time_of_shared_passes_counts_once(method, seconds, demo_shots, expected):
    done = [
        dataclasses.replace(record(name, seed, 0.5, demo_shots=demo_shots), seconds={"language_model": each})
        for seed, each in enumerate(seconds, 1)
        for name in {method, "tfidf"}
    ]
    text = comparison.describe_comparison(done)
    assert expected in text and ("prompts" in text.replace("prompts truncated", "")) == (method == "knn")
