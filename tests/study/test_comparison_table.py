"""The table that a comparison prints, from records made by hand."""

from knnprompt_jax.report import records
from knnprompt_jax.study import comparison
from tests.study.small_world import make_record


def record(method: str, seed: int, accuracy: float, **fields: object) -> records.Record:
    fields |= {"method": method, "seed": seed, "accuracy": accuracy, "prompts": 30, "truncated_prompts": 3}
    return make_record(**fields, lm_tokens=1000 * seed)


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
        "Mean ± standard deviation over seeds. LM tokens are per seed",
        "Noisy channel: 6 of 60 prompts truncated (10.0 %).",
    ):
        assert expected in text
    assert "best of 3" not in text
