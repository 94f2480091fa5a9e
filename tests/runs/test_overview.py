"""The table that a comparison prints, from records made by hand."""

import dataclasses
import re

import pytest

from knnprompt_jax.report import records
from knnprompt_jax.study import comparison
from tests.runs.conftest import make_record


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
        "7 train rows per class: ",
        "In-context learning 25.0 ± 0.0 1,500",
        "Noisy channel 75.0 ± 0.0 1,500",
        "· mean of its 2 56.2 ± 8.8",
        "· worst of its 2 37.5 ± 17.7",
        "Noisy channel, seed 1: best of 2, CHOSEN.",
        "The model read about 300 prompts of a seed in 3.00 seconds (100.0 prompts/s).",
        "Mean ± standard deviation over seeds. LM tokens are per seed",
        "6 of 60 prompts truncated (10.0 %): In-context learning, Noisy channel.",
    ):
        assert expected in text
    assert "best of 3" not in text


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("knn", "An earlier run had read all prompts.\n"),
        ("tfidf", "Sentence encoder, kNN"),
    ],
)
def test_no_shared_pass(method, expected):
    done = [dataclasses.replace(record(method, 1, 0.5), seconds={"language_model": 0, "method": 1})]
    done.append(dataclasses.replace(record("encoder_knn", 1, 0.5), seconds={"language_model": 0, "method": 1}))
    text = comparison.describe_comparison(done)
    assert expected in text and ("earlier run" in text) == (method == "knn")


def test_a_method_without_the_shared_pass_does_not_hide_its_time():
    done = [
        record("icl", 1, 0.5),
        dataclasses.replace(record("tfidf", 1, 0.5), seconds={"language_model": 0, "method": 1}),
    ]
    text = comparison.describe_comparison(done)
    assert "The model read about 200 prompts of a seed in 2.00 seconds (100.0 prompts/s).\n" in text
    assert "±" not in text, "one seed has no spread"


def test_seeds_that_an_earlier_run_cached_do_not_count():
    cached = dataclasses.replace(record("icl", 1, 0.5), seconds={"language_model": 0.0, "method": 1})
    done = [cached, dataclasses.replace(record("icl", 2, 0.5), prompts_per_second=7.5)]
    expected = r"read about 30 prompts of a seed in 4.00 seconds \(7.5 prompts/s; an earlier run had read those of 1 of 2 seeds\)\.\n"
    assert re.search(expected, comparison.describe_comparison(done))


def test_seeds_without_demonstrations_share_one_pass():
    counts = {"yes": {"word": "good", "demonstrations": 0, "anchors": 1}}
    done = [record("knn", seed, 0.5, demo_shots=0, class_counts=counts) for seed in (1, 2)]
    cached = dataclasses.replace(done[0], seconds={"language_model": 0.0, "method": 1})
    assert "an earlier run" not in comparison.describe_comparison([cached, done[1]])
    text = comparison.describe_comparison(done)
    assert (
        "The model read about 300 prompts in 3.00 seconds (100.0 prompts/s).\n" in text
        and "7 train rows per class: 0 demonstrations, 1 anchor\n" in text
    )
