"""What a fitted classifier says of states: labels, probabilities and neighbours, by the plain vote or by the rule that was chosen."""

import dataclasses

import jax
import numpy as np

from knnprompt_jax import lm as lm_lib
from knnprompt_jax import parallel
from knnprompt_jax.classifier import calibration, leave_one_out, passes, predictions, rounding
from knnprompt_jax.classifier.core import Classifier
from knnprompt_jax.store import distances, kernel, search


def of_states(classifier: Classifier, states: lm_lib.States) -> predictions.Predictions:
    """The predictions of texts by the states of their prompts."""
    states = parallel.replicate(states)
    if classifier.options_.is_plain:
        near, by_rounding_Q = voters(classifier, states)
        classes_Q, p_QC = predictions.vote(near, classifier.task.num_classes, classifier.tie_break)
    else:
        near, classes_Q, p_QC, by_rounding_Q = _by_rule(classifier, states)
    ids_N, labels_C = classifier.searched_.ids_N, classifier.labels_
    return predictions.of(near, ids_N, labels_C, classes_Q, p_QC, by_rounding_Q)


def voters(classifier: Classifier, states: lm_lib.States) -> tuple[kernel.Neighbours, np.ndarray | None]:
    """The neighbours that vote on each state, and whether rounding decides the majority [Q], as in `Predictions`."""
    looked_at, near, bounds = _near(classifier, states)
    if bounds is None:
        return near, None
    classes_Q, _ = predictions.vote(near, classifier.task.num_classes, classifier.tie_break)
    vote = (near.labels_Qk.shape[1], len(classifier.searched_), classes_Q, classifier.tie_break)
    return near, rounding.by_votes(looked_at, bounds, *vote)


def left_out(classifier: Classifier) -> tuple[np.ndarray, np.ndarray]:
    """The class [N] of each anchor by all others, and the classes' probabilities [N, C], in class order.

    Raises:
      UserError: there are no k other anchors, or no states of them.
    """
    store, rule = classifier.store_, classifier.rule_
    states = passes.on_devices(classifier.kept_states(), classifier.lm.mesh)
    options = search.SearchOptions(min(rule.k, len(store) - 1), rule.distance)
    near = leave_one_out.neighbours(store, options, states)
    if classifier.options_.is_plain:
        return predictions.vote(near, classifier.task.num_classes, classifier.tie_break)
    fitted = dataclasses.replace(classifier.fitted_, rule=rule)
    p_NC = fitted.left_out(*_arrays(near), np.asarray(classifier.kept_states().hidden_NE), store.labels_N)
    return p_NC.argmax(-1), p_NC


def _by_rule(
    classifier: Classifier, states: lm_lib.States
) -> tuple[kernel.Neighbours, np.ndarray, np.ndarray, np.ndarray | None]:
    """Neighbours, classes [Q], probabilities [Q, C], and which classes rounding may change."""
    rule, model = classifier.rule_, classifier.lm
    fitted = dataclasses.replace(classifier.fitted_, rule=rule)
    hidden_QE, prior_C = np.asarray(states.hidden_NE), calibration.prior_of(classifier.class_prior, classifier.labels_)
    looked_at, near, bounds = _near(classifier, states)
    p_QC = fitted.probabilities(*_arrays(near), hidden_QE, prior_C)
    classes_Q = p_QC.argmax(-1)
    if bounds is None:
        return near, classes_Q, p_QC, None
    labels_QK, distances_QK = rounding.against(looked_at, bounds, classes_Q)
    against = labels_QK[:, : rule.k], distances_QK[:, : rule.k]
    moves_QC: np.ndarray | float = 0.0
    if fitted.probe:
        moves_QC = rounding.linear_moves(fitted.weights_of_probe(), model, states)
        moves_QC = np.where(np.arange(p_QC.shape[1]) == classes_Q[:, None], -moves_QC, moves_QC)
    otherwise_QC = fitted.probabilities(*against, hidden_QE, prior_C, moves_QC)
    return near, classes_Q, p_QC, otherwise_QC.argmax(-1) != classes_Q


def _near(
    classifier: Classifier, states: lm_lib.States
) -> tuple[kernel.Neighbours, kernel.Neighbours, tuple[np.ndarray, np.ndarray] | None]:
    """Neighbours beyond those that vote, those that vote, and how far rounding moves the distances of the first: `rounding.bounds`."""
    rule, codec = classifier.rule_, classifier.searched_.codec
    looked_at, k = classifier.search(states, rule.k, rounding.LOOKED_AT), classifier.search_options(rule.k).k
    near = jax.tree.map(lambda array_QK: array_QK[:, :k], looked_at)
    return looked_at, near, rounding.bounds(looked_at, distances.get(rule.distance), classifier.lm, states, codec)


def _arrays(near: kernel.Neighbours) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(near.labels_Qk), np.asarray(near.distances_Qk)
