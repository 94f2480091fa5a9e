"""Records as frames: means, spreads and groups against NumPy."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax.report import results


def test_an_average_is_over_tasks_and_spreads_over_the_shared_seeds(make_record):
    accuracies = {("sst2", 1): 0.5, ("sst2", 2): 0.7, ("trec", 1): 0.2, ("trec", 2): 0.6, ("trec", 3): 0.9}
    records = [
        dataclasses.replace(make_record("few_shot", task, "knn", 4, seed), accuracy=accuracy)
        for (task, seed), accuracy in accuracies.items()
    ]
    found = results.average(results.frame(records))
    by_seed = [100 * (0.5 + 0.2) / 2, 100 * (0.7 + 0.6) / 2]
    assert (found.mean, found.std, found.count) == pytest.approx((np.mean(by_seed), np.std(by_seed, ddof=1), 2))
    one_seed = results.average(results.frame(records[2:]))
    assert one_seed.mean == pytest.approx(100 * (0.2 + 0.6 + 0.9) / 3)


def test_fine_tuned_models_appear_with_every_language_model(make_record):
    records = [make_record("fine_tuning", "mr", "knn", 32, 1, model=model) for model in ("gpt2", "opt-1.3b")]
    records.append(make_record("fine_tuning", "mr", "fine_tuning_bert", 32, 1, model="bert-large-uncased"))
    found = results.by_model(results.frame(records))
    assert {model: list(rows.record) for model, rows in found.items()} == {
        "gpt2": records[::2],
        "opt-1.3b": records[1:],
    }


def test_the_best_template_is_the_best_over_seeds(make_record):
    tried = {1: (0.9, 0.8, 0.5, 0.7), 2: (0.4, 0.8, 0.9, 0.7)}
    frame = results.frame(
        [make_record("few_shot", "mr", "noisy_channel", 8, seed, candidates=each) for seed, each in tried.items()]
    )
    assert results.with_best_template(frame).accuracy.tolist() == pytest.approx([80, 80])
