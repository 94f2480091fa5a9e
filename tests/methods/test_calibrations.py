"""Calibrations against their definitions in float64."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import optimize, special, stats
from sklearn import mixture

from knnprompt_jax.methods import calibrations
from tests.methods import synthetic as synthetic_lib
from tests.methods.synthetic import normalised

OPTIONS = {"linc": {"epochs": 4, "learning_rate": 0.3, "rows": 31}, "proca": {"restarts": 3}}


def predict(name, context):
    return synthetic_lib.predict(name, context, **OPTIONS.get(name, {}))


def bias(synthetic):
    """Return p_cf as published: averaged over the content-free inputs, then normalised over the labels."""
    return normalised(synthetic.p_labels(synthetic.content_free).mean(0))


def contextual(synthetic, y, p_QC):
    return p_QC / bias(synthetic)


def contextual_trainset(synthetic, y, p_QC):
    return p_QC / bias(synthetic) * np.bincount(y, minlength=5)


def batch(synthetic, y, p_QC):
    return p_QC / np.exp(np.log(p_QC).mean(0))


def linc(synthetic, y, p_QC):
    """Take one gradient step per row, from contextual calibration's slope."""
    options = OPTIONS["linc"]
    p_NC = normalised(synthetic.p_labels(synthetic.anchors))[: options["rows"]]
    slope_CC = np.diag(1 / bias(synthetic))
    shift_C = np.zeros(5)
    generator = np.random.default_rng(1)
    for _ in range(options["epochs"]):
        for row in generator.permutation(len(p_NC)):
            error_C = special.softmax(slope_CC @ p_NC[row] + shift_C) - np.eye(5)[y[row]]
            slope_CC = slope_CC - options["learning_rate"] * np.outer(error_C, p_NC[row])
            shift_C = shift_C - options["learning_rate"] * error_C
    return np.exp(normalised(p_QC) @ slope_CC.T + shift_C)


def proca(synthetic, y, p_QC):
    """Try all matchings, and compare densities of equally weighted Gaussians."""
    log_p_NC = np.log(synthetic.p_labels(synthetic.anchors)[: len(y)])
    seeds = np.random.default_rng(1).integers(2**31, size=OPTIONS["proca"]["restarts"])
    mixtures = [mixture.GaussianMixture(5, random_state=int(seed)).fit(log_p_NC) for seed in seeds]
    matchings = []
    for number, fitted in enumerate(mixtures):
        for order in itertools.permutations(range(5)):
            weight = sum(fitted.means_[cluster, label] for label, cluster in enumerate(order))
            matchings.append((weight, number, order))
    _, number, order = max(matchings)
    best = mixtures[number]
    gaussians = [stats.multivariate_normal(best.means_[cluster], best.covariances_[cluster]) for cluster in order]
    return np.stack([gaussian.pdf(np.log(p_QC)) for gaussian in gaussians], axis=-1)


def supervised(synthetic, y, p_QC):
    """Minimise the loss as written in the source, without its gradient's formula."""
    p_NC = normalised(synthetic.p_labels(synthetic.anchors)[: len(y)])

    def loss(flat):
        slope_C, shift_C = flat.reshape(2, 5)
        scores_NC = np.log(p_NC) * slope_C + shift_C
        log_p_N = scores_NC[np.arange(len(y)), y] - np.log(np.exp(scores_NC).sum(-1))
        return -log_p_N.sum() + 0.5 * (((slope_C - 1) ** 2).sum() + (shift_C**2).sum())

    slope_C, shift_C = optimize.minimize(loss, np.repeat([1.0, 0.0], 5)).x.reshape(2, 5)
    return np.exp(np.log(normalised(p_QC)) * slope_C + shift_C)


REFERENCES = {
    "contextual_calibration": contextual,
    "contextual_calibration_trainset": contextual_trainset,
    "domain_context_calibration": contextual,  # The synthetic context has the same states for both prompt sets.
    "batch_calibration": batch,
    "proca": proca,
    "linc": linc,
    "supervised_calibration": supervised,
}
USE_LABELS = ("contextual_calibration_trainset", "linc", "supervised_calibration")


@pytest.mark.parametrize(
    ("name", "missing"), [*((name, None) for name in REFERENCES), *((name, 3) for name in USE_LABELS)]
)
def test_predictions_are_those_of_the_definition(synthetic, name, missing):
    """Every class has anchors, or class `missing` has none."""
    y = np.where(synthetic.y == missing, 0, synthetic.y)
    want_QC = normalised(REFERENCES[name](synthetic, y, synthetic.p_labels(synthetic.queries)))
    prediction = predict(name, synthetic.context(y))
    np.testing.assert_allclose(prediction.probabilities_QC, want_QC, rtol=2e-4, atol=2e-3)
    np.testing.assert_array_equal(prediction.classes_Q, want_QC.argmax(-1))
    assert ((prediction.probabilities_QC == 0) >= (want_QC == 0)).all()
    assert len(set(want_QC.argmax(-1))) > 2


def test_ties_go_to_the_lowest_class(synthetic):
    """Batch Calibration of a single query subtracts its own log-probabilities, so that all classes are equal."""
    prediction = predict("batch_calibration", synthetic.context(queries=slice(4, 5)))
    np.testing.assert_allclose(prediction.probabilities_QC, np.full((1, 5), 0.2), atol=1e-12)
    assert prediction.classes_Q == [0]


def test_content_free_queries_fill_every_field_and_keep_every_line(problem):
    task = dataclasses.replace(problem.task, template="{first}\n{second}:")
    queries = calibrations.content_free_queries(dataclasses.replace(problem, task=task))
    assert [task.render(query) for query in queries] == ["N/A\nN/A:", "\n:", "[MASK]\n[MASK]:"]


def test_domain_queries_are_random_words_of_each_field(problem):
    queries = calibrations.domain_queries(problem)
    assert len(queries) == 20
    assert queries == calibrations.domain_queries(problem), "the split's seed decides"
    for field, length in (("first", 4), ("second", 2)):  # One more than the mean of 3 words and of 1 word, as released.
        corpus = {word for row in problem.train_rows for word in row.fields[field].lower().split()}
        texts = [query.fields[field].split() for query in queries]
        assert all(words[-1] == "." for words in texts)
        assert all(len(words) == length + 1 for words in texts)
        assert corpus.issuperset(word for words in texts for word in words[:-1])
        assert len({tuple(words) for words in texts}) > 5
    rows = [dataclasses.replace(row, fields={**row.fields, "second": ""}) for row in problem.split.anchors]
    split = dataclasses.replace(problem.split, demonstrations=(), anchors=tuple(rows))
    queries = calibrations.domain_queries(dataclasses.replace(problem, split=split))
    assert all(query.fields["second"] == "" and query.fields["first"].endswith(" .") for query in queries)
