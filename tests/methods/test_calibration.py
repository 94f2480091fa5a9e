"""Contextual, domain-context and Batch Calibration against their definitions in NumPy."""

import dataclasses

import numpy as np
import pytest

from knnprompt_jax.methods import batch_calibration, contextual_calibration, domain_context_calibration


def normalised(scores_QC):
    return scores_QC / scores_QC.sum(-1, keepdims=True)


@pytest.fixture
def bias_C(synthetic):
    """p_cf as published: averaged over the content-free inputs first, normalised over the labels then."""
    return normalised(synthetic.p_labels(synthetic.content_free).mean(0))


def contextual(synthetic, **options):
    return contextual_calibration.ContextualCalibration(
        synthetic.head, synthetic.label_ids, synthetic.content_free, contextual_calibration.Settings(**options)
    )


def test_contextual_calibration(synthetic, bias_C):
    p_QC = normalised(synthetic.p_labels(synthetic.queries))
    want_QC = np.stack([np.linalg.inv(np.diag(bias_C)) @ p_C for p_C in p_QC])
    classifier = contextual(synthetic).fit(synthetic.anchors, synthetic.y)
    np.testing.assert_allclose(classifier.predict_proba(synthetic.queries), normalised(want_QC), rtol=2e-4)
    np.testing.assert_array_equal(classifier.predict(synthetic.queries), want_QC.argmax(-1))
    assert (want_QC.argmax(-1) != p_QC.argmax(-1)).any()


def test_trainset_prior(synthetic, bias_C):
    y = np.array([0, 0, 0, 1, 2, 2, 4])
    want_QC = synthetic.p_labels(synthetic.queries) / bias_C * np.array([3, 1, 2, 0, 1])
    classifier = contextual(synthetic, prior="trainset").fit(y=y)
    np.testing.assert_allclose(classifier.predict_proba(synthetic.queries), normalised(want_QC), rtol=2e-4, atol=1e-12)
    assert 3 not in classifier.predict(synthetic.queries)


def test_content_free_queries(problem):
    texts = [problem.task.render(query) for query in contextual_calibration.content_free_queries(problem)]
    assert texts == ["N/A/N/A:", "/:", "[MASK]/[MASK]:"]


def test_domain_queries(problem):
    queries = domain_context_calibration.domain_queries(problem)
    assert len(queries) == 20 and queries == domain_context_calibration.domain_queries(problem)
    for field, length in (("first", 4), ("second", 2)):  # 3 and 1 words a row on average, and one more, as released.
        corpus = {word for row in problem.train_rows for word in row.fields[field].lower().split()}
        drawn = [query.fields[field].split() for query in queries]
        assert all(words[-1] == "." and len(words) == length + 1 and corpus.issuperset(words[:-1]) for words in drawn)
        assert len({tuple(words) for words in drawn}) > 5


def test_batch_calibration(synthetic):
    log_p_QC = np.log(synthetic.p_labels(synthetic.queries))
    scores_QC = log_p_QC - log_p_QC.mean(0)
    classifier = batch_calibration.BatchCalibration(synthetic.head, synthetic.label_ids).fit(synthetic.queries)
    np.testing.assert_allclose(classifier.predict_proba(synthetic.queries), normalised(np.exp(scores_QC)), rtol=2e-4)
    np.testing.assert_array_equal(classifier.predict(synthetic.queries), scores_QC.argmax(-1))


def test_batch_of_one_is_a_tie_that_the_lowest_class_wins(synthetic):
    query = synthetic.queries[4:5]
    classifier = batch_calibration.BatchCalibration(synthetic.head, synthetic.label_ids).fit(query)
    np.testing.assert_allclose(classifier.predict_proba(query), np.full((1, 5), 0.2), atol=1e-12)
    assert classifier.predict(query) == [0]


@pytest.mark.parametrize("kind", ["contextual", "batch"])
def test_one_class_only(synthetic, kind):
    one = dataclasses.replace(synthetic, label_ids=[7])
    made = contextual(one) if kind == "contextual" else batch_calibration.BatchCalibration(one.head, one.label_ids)
    classifier = made.fit(synthetic.queries)
    np.testing.assert_array_equal(classifier.predict_proba(synthetic.queries), np.ones((13, 1)))
