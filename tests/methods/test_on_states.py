"""Methods on states against their definitions in float64."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import optimize, special, stats
from sklearn import linear_model, mixture, pipeline, preprocessing

from knnprompt_jax import errors
from knnprompt_jax.methods import calibrations, hidden_states, registry
from knnprompt_jax.settings import methods

LINC = {"epochs": 4, "learning_rate": 0.3, "rows": 31}
PROCA = {"restarts": 3}


def bias(synthetic):
    """p_cf as published: averaged over the content-free inputs first, normalised over the labels then."""
    return normalised(synthetic.p_labels(synthetic.content_free).mean(0))


def normalised(scores):
    return scores / scores.sum(-1, keepdims=True)


def trainset(synthetic, y, p_QC):
    return p_QC / bias(synthetic) * np.bincount(y, minlength=5)


def batch(synthetic, y, p_QC):
    return p_QC / np.exp(np.log(p_QC).mean(0))


def linc(synthetic, y, p_QC):
    """One gradient step per row, from contextual calibration's slope."""
    p_NC = normalised(synthetic.p_labels(synthetic.anchors))[: LINC["rows"]]
    slope_CC, shift_C, generator = np.diag(1 / bias(synthetic)), np.zeros(5), np.random.default_rng(1)
    for _ in range(LINC["epochs"]):
        for row in generator.permutation(len(p_NC)):
            error_C = special.softmax(slope_CC @ p_NC[row] + shift_C) - np.eye(5)[y[row]]
            slope_CC = slope_CC - LINC["learning_rate"] * np.outer(error_C, p_NC[row])
            shift_C = shift_C - LINC["learning_rate"] * error_C
    return np.exp(normalised(p_QC) @ slope_CC.T + shift_C)


def proca(synthetic, y, p_QC):
    """Matchings by brute force, and densities of equally weighted Gaussians."""
    log_p_NC = np.log(synthetic.p_labels(synthetic.anchors)[: len(y)])
    seeds = np.random.default_rng(1).integers(2**31, size=PROCA["restarts"])
    fitted = [mixture.GaussianMixture(5, random_state=int(seed)).fit(log_p_NC) for seed in seeds]
    matchings = [
        (sum(each.means_[cluster, label] for label, cluster in enumerate(order)), number, order)
        for number, each in enumerate(fitted)
        for order in itertools.permutations(range(5))
    ]
    _, number, order = max(matchings)
    gaussians = [
        stats.multivariate_normal(fitted[number].means_[cluster], fitted[number].covariances_[cluster])
        for cluster in order
    ]
    return np.stack([gaussian.pdf(np.log(p_QC)) for gaussian in gaussians], axis=-1)


def supervised(synthetic, y, p_QC):
    """The loss as written in the source, minimised without its gradient's formula."""
    p_NC = normalised(synthetic.p_labels(synthetic.anchors)[: len(y)])

    def loss(flat):
        slope_C, shift_C = flat.reshape(2, 5)
        scores_NC = np.log(p_NC) * slope_C + shift_C
        right_N = scores_NC[np.arange(len(y)), y] - np.log(np.exp(scores_NC).sum(-1))
        return -right_N.sum() + 0.5 * (((slope_C - 1) ** 2).sum() + (shift_C**2).sum())

    slope_C, shift_C = optimize.minimize(loss, np.repeat([1.0, 0.0], 5)).x.reshape(2, 5)
    return np.exp(np.log(normalised(p_QC)) * slope_C + shift_C)


def centroids(synthetic, y, p_QC):
    h_NE, h_QE = (np.asarray(states.hidden_NE, np.float64) for states in (synthetic.anchors, synthetic.queries))
    h_NE = h_NE[: len(y)]
    scores_QC = np.zeros((len(h_QE), 5))
    for label in set(y.tolist()):
        scores_QC[:, label] = np.exp(-np.linalg.norm(h_QE - h_NE[y == label].mean(0), axis=-1))
    return scores_QC


def probe(inputs):
    def predict(synthetic, y, p_QC):
        """scikit-learn's pipeline on the whole inputs, log-probabilities of all V tokens included."""
        x_NV, x_QV = (inputs(synthetic, states) for states in (synthetic.anchors, synthetic.queries))
        regression = linear_model.LogisticRegression(C=1000 / x_NV.shape[1], max_iter=5000, tol=1e-7)
        fitted = pipeline.make_pipeline(preprocessing.StandardScaler(), regression).fit(x_NV[: len(y)], y)
        scores_QC = np.zeros((len(x_QV), 5))
        scores_QC[:, np.unique(y)] = fitted.predict_proba(x_QV)
        return scores_QC

    return predict


REFERENCES = {
    "icl": lambda synthetic, y, p_QC: p_QC,
    "contextual_calibration": lambda synthetic, y, p_QC: p_QC / bias(synthetic),
    "contextual_calibration_trainset": trainset,
    "domain_context_calibration": lambda synthetic, y, p_QC: p_QC / bias(synthetic),
    "batch_calibration": batch,
    "proca": proca,
    "linc": linc,
    "supervised_calibration": supervised,
    "hidden_centroids": centroids,
    "linear_probe": probe(lambda synthetic, states: np.asarray(states.hidden_NE, np.float64)),
    "linear_probe_log_p": probe(lambda synthetic, states: synthetic.log_p(states)),
}
OPTIONS = {"linc": LINC, "proca": PROCA}
READ_LABELS = ("contextual_calibration_trainset", "linc", "supervised_calibration", "hidden_centroids", "linear_probe")


def run(name, context):
    declared = registry.get(name)
    options = dataclasses.replace(declared.options(methods.MethodOptions()), **OPTIONS.get(name, {}))
    return declared.run(context, options)


@pytest.mark.parametrize(
    ("name", "missing"), [*((name, None) for name in REFERENCES), *((name, 3) for name in READ_LABELS)]
)
def test_is_the_definition(synthetic, name, missing):
    """With every class, and with one that has no anchor."""
    y = np.where(synthetic.y == missing, 0, synthetic.y)
    p_QC = synthetic.p_labels(synthetic.queries)
    want_QC = normalised(REFERENCES[name](synthetic, y, p_QC))
    prediction = run(name, synthetic.context(y))
    np.testing.assert_allclose(prediction.probabilities_QC, want_QC, rtol=2e-4, atol=2e-3)
    np.testing.assert_array_equal(prediction.classes_Q, want_QC.argmax(-1))
    assert len(set(want_QC.argmax(-1))) > 2
    if missing is not None and name not in ("linc", "supervised_calibration"):
        assert (prediction.probabilities_QC[:, missing] == 0).all()


@pytest.mark.parametrize("name", REFERENCES)
def test_one_class(synthetic, name):
    """A task of one class is always predicted with certainty."""
    prediction = run(name, synthetic.context(np.zeros(29, int), "0"))
    np.testing.assert_allclose(prediction.probabilities_QC, np.ones((13, 1)), atol=1e-12)


@pytest.mark.parametrize("name", ["hidden_centroids", "linear_probe", "linear_probe_log_p"])
def test_one_anchor(synthetic, name):
    prediction = run(name, synthetic.context(np.array([1]), "012"))
    np.testing.assert_array_equal(prediction.probabilities_QC, np.tile([0.0, 1.0, 0.0], (13, 1)))


def test_ties_go_to_the_lowest_class(synthetic):
    prediction = run("batch_calibration", synthetic.context(queries=slice(4, 5)))
    np.testing.assert_allclose(prediction.probabilities_QC, np.full((1, 5), 0.2), atol=1e-12)
    assert prediction.classes_Q == [0]
    h_NE = np.asarray(synthetic.anchors.hidden_NE)[np.tile(np.arange(6), 2)]
    p_QC = hidden_states.centroid_proba(h_NE, np.repeat([2, 1], 6), np.asarray(synthetic.queries.hidden_NE), 3)
    np.testing.assert_array_equal(p_QC.argmax(-1), np.ones(13))


def test_content_free_queries(problem):
    texts = [problem.task.render(query) for query in calibrations.content_free_queries(problem)]
    assert texts == ["N/A/N/A:", "/:", "[MASK]/[MASK]:"]


def test_domain_queries(problem):
    queries = calibrations.domain_queries(problem)
    assert len(queries) == 20 and queries == calibrations.domain_queries(problem)
    for field, length in (("first", 4), ("second", 2)):  # 3 and 1 words a row on average, and one more, as released.
        corpus = {word for row in problem.train_rows for word in row.fields[field].lower().split()}
        drawn = [query.fields[field].split() for query in queries]
        assert all(words[-1] == "." and len(words) == length + 1 and corpus.issuperset(words[:-1]) for words in drawn)
        assert len({tuple(words) for words in drawn}) > 5


def test_domain_queries_of_a_field_without_words(problem):
    rows = [dataclasses.replace(row, fields={**row.fields, "second": ""}) for row in problem.split.anchors]
    split = dataclasses.replace(problem.split, demonstrations=(), anchors=tuple(rows))
    queries = calibrations.domain_queries(dataclasses.replace(problem, split=split))
    assert all(query.fields["second"] == "" and query.fields["first"].endswith(" .") for query in queries)


@pytest.mark.parametrize(("rows", "labels", "required"), [(4, "01234", 5), (1, "0", 2)])
def test_prototypical_calibration_needs_an_anchor_per_cluster(synthetic, rows, labels, required):
    problem = synthetic.context(np.zeros(rows, int), labels).problem
    with pytest.raises(errors.UserError, match=f"{rows} anchors and needs {required}"):
        calibrations.check_prototypical(problem)
