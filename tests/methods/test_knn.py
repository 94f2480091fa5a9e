"""kNN Prompting against its definition, computed by brute force in float64."""

import collections
import dataclasses
import re

import numpy as np
import pytest

from knnprompt_jax.methods import knn, registry
from knnprompt_jax.paper.experiments import axes
from knnprompt_jax.settings import methods
from knnprompt_jax.settings.classifiers import TIE_BREAKS, KNNOptions
from knnprompt_jax.store import distances
from tests.store import worlds

MARGIN = 1e-4  # Nats, or relative to the median distance if that is shorter; float32 cannot rank smaller differences.


@pytest.fixture(scope="module")
def context(synthetic):
    return synthetic.context()


def by_definition(synthetic, name):
    """[Q, N]: divergences of distributions, or Euclidean lengths between hidden states."""
    h_QE, h_NE = (np.asarray(each.hidden_NE, np.float64) for each in (synthetic.queries, synthetic.anchors))
    log_p = [synthetic.log_p(each) for each in (synthetic.queries, synthetic.anchors)]
    return worlds.distances(name, h_QE, h_NE, *log_p, synthetic.label_ids)


def vote_by_definition(labels, tie_break):
    """The class of one query from its neighbours' classes, nearest first."""
    counts = collections.Counter(labels)
    best = [label for label in labels if counts[label] == max(counts.values())]
    return best[0] if tie_break == "nearest" else min(best)


@pytest.mark.parametrize(("k", "tie_break"), [*zip((8, 3), TIE_BREAKS, strict=True)])
@pytest.mark.parametrize("name", distances.DISTANCES)
def test_predictions_are_those_of_the_definition(synthetic, context, name, k, tie_break):
    prediction = knn.run(context, KNNOptions(k=k, distance=name, tie_break=tie_break))
    distances_QN = by_definition(synthetic, name)
    margin = MARGIN * min(1.0, np.median(np.abs(distances_QN)))
    certain_Q = np.diff(np.sort(distances_QN)[:, : k + 1]).min(-1) > margin
    assert certain_Q.mean() > 0.4, "too few queries are certain for this to test anything"
    labels_Qk = synthetic.y[distances_QN.argsort(-1)[:, :k]].tolist()
    want_Q = np.array([vote_by_definition(labels, tie_break) for labels in labels_Qk])
    np.testing.assert_array_equal(prediction.classes_Q[certain_Q], want_Q[certain_Q])
    shares_QC = np.array([[labels.count(label) / k for label in range(5)] for labels in labels_Qk])
    np.testing.assert_allclose(prediction.probabilities_QC[certain_Q], shares_QC[certain_Q], rtol=1e-6)
    assert len(set(want_Q)) > 2


VARIANTS = {
    "knn": {},
    "knn_reverse_kl": {"distance": "reverse_kl"},
    "knn_kl_labels": {"distance": "kl_labels"},
    "knn_l2": {"distance": "l2"},
    "knn_centroid": {"centroid": "arithmetic"},
    "knn_centroid_geometric": {"centroid": "geometric"},
}


@pytest.mark.parametrize(("name", "options"), VARIANTS.items())
def test_variants_are_options_of_one_classifier(context, name, options):
    declared = registry.get(name)
    ours = declared.run(context, declared.options(methods.MethodOptions()))
    expected = knn.run(context, KNNOptions(**options))
    np.testing.assert_array_equal(ours.probabilities_QC, expected.probabilities_QC)


@pytest.mark.parametrize(
    ("k", "shots", "demo_shots", "used"), [(3, 5, 4, 1), (3, 5, 3, 2), (3, 100, 2, 3), (7, 9, 4, 5), (500, 500, 0, 103)]
)
def test_the_published_k(context, k, shots, demo_shots, used):
    split = dataclasses.replace(context.problem.split, shots=shots, demo_shots=demo_shots)
    assert knn.published_k(k, dataclasses.replace(context.problem, split=split)) == used


@pytest.mark.parametrize("options", [{"tie_break": "nearest"}, {"weights": "distance"}])
def test_any_k_is_the_method_without_the_published_limit(context, options):
    options = KNNOptions(k=8, **options)
    ours, expected = axes._ANY_K.run(context, options), knn.run(context, options)
    np.testing.assert_allclose(ours.probabilities_QC, expected.probabilities_QC, rtol=1e-6)
    np.testing.assert_array_equal(ours.classes_Q, expected.classes_Q)


@pytest.mark.parametrize("name", ["chosen", "knn_chosen"])
def test_chosen_rule_finds_the_classes_and_is_in_the_note(synthetic, name):
    """The labels are not in sorted order, so that columns may not be confused."""
    context, declared = synthetic.context(labels="42310"), registry.get(name)
    prediction = declared.run(context, declared.options(methods.MethodOptions()))
    assert np.mean(prediction.classes_Q == np.arange(13) % 5) > 0.9
    np.testing.assert_array_equal(prediction.probabilities_QC.argmax(-1), prediction.classes_Q)
    assert re.match(r"chosen from \d+ candidates: rule=", prediction.note) and (
        name == "chosen" or "rule=votes" in prediction.note
    )
