"""Means, spreads and groups against NumPy."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax.report import scores
from knnprompt_jax.report.scores import Score


def test_score_is_mean_and_sample_standard_deviation():
    values = [61.5, 70.25, 58.0]
    found = scores.of(values)
    assert (found.mean, found.std, found.count) == pytest.approx((np.mean(values), np.std(values, ddof=1), 3))
    assert scores.of([3.5]) == Score(3.5, None, 1)


def test_two_standard_errors_add_the_variances_of_both_means():
    expected = 2 * np.sqrt(3.0**2 / 5 + 4.0**2 / 10)
    assert scores.two_standard_errors(Score(1, 3.0, 5), Score(2, 4.0, 10)) == pytest.approx(expected)
    assert scores.two_standard_errors(Score(1, 3.0, 5), Score(2)) is None


def test_average_is_over_tasks_and_spreads_over_the_seeds_that_all_have(make_record):
    accuracies = {("sst2", 1): 0.5, ("sst2", 2): 0.7, ("trec", 1): 0.2, ("trec", 2): 0.6, ("trec", 3): 0.9}
    found = scores.average(
        dataclasses.replace(make_record("few_shot", task, "knn", 4, seed), accuracy=accuracy)
        for (task, seed), accuracy in accuracies.items()
    )
    by_seed = [100 * (0.5 + 0.2) / 2, 100 * (0.7 + 0.6) / 2]
    assert (found.mean, found.std, found.count) == pytest.approx((np.mean(by_seed), np.std(by_seed, ddof=1), 2))


@pytest.mark.parametrize(
    ("experiment", "method", "cell", "m"),
    [
        ("few_shot", "icl", {"regime": "few-shot"}, 16),
        ("low_resource", "icl", {}, None),
        ("upper_bound", "demonstration_upper_bound", {"regime": "full"}, None),
        ("low_resource", "icl_ensemble", {}, 16),
        ("low_resource", "knn", {}, 16),
        ("data_scaling", "icl", {"regime": "full"}, None),
        ("data_scaling", "icl", {"regime": "few-shot"}, 16),
        ("distance", "contextual_calibration", {}, None),
    ],
)
def test_methods_without_anchors_have_no_m_where_they_fill_the_context(make_record, experiment, method, cell, m):
    assert scores.axis(make_record(experiment, "mr", method, 16, 1, cell=cell), "m") == m


def test_fine_tuned_models_stand_with_every_language_model(make_record):
    records = [make_record("fine_tuning", "mr", "knn", 32, 1, model=model) for model in ("gpt2", "opt-1.3b")]
    records.append(make_record("fine_tuning", "mr", "fine_tuning_bert", 32, 1, model="bert-large-uncased"))
    assert scores.by_model(records) == {"gpt2": records[::2], "opt-1.3b": records[1:]}
