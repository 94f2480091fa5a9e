"""kNN Prompting and its variants (Xu et al., ICLR 2023, Section 3 and its appendices), and the rule that its anchors choose."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors, parallel, rules
from knnprompt_jax.methods import method
from knnprompt_jax.settings import classifiers
from knnprompt_jax.store import distances, kernel
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.store.search import SearchOptions


def published_k(k: int, problem: method.Problem) -> int:
    """Return the k of the released code: at most m − |D|, the anchors per class, and at most the number of anchors."""
    split = problem.split
    return min(k, max(1, split.shots - split.demo_shots), len(split.anchors))


def run(context: method.Context, options: classifiers.KNNOptions) -> method.Prediction:
    """Predict by vote; probabilities are the classes' shares of the vote."""
    return vote(context, options, published_k(options.k, context.problem))


def vote(context: method.Context, options: classifiers.KNNOptions, k: int) -> method.Prediction:
    """Predict by the vote of the k nearest anchors, or by the nearest class mean."""
    near = neighbours(context, options, k)
    num_classes = context.num_classes
    return method.Prediction(*kernel.vote(near, num_classes, options.tie_break, options.weights))


def neighbours(context: method.Context, options: classifiers.KNNOptions, k: int) -> kernel.Neighbours:
    """Return the k nearest anchors of each row to classify, or its nearest class mean."""
    searched = store_lib.centroids(_store(context, options.distance), options.centroid, context.head, options.distance)
    search_options = SearchOptions(
        k if options.centroid == "none" else 1, options.distance, options.approximate_recall or None
    )
    return searched.search(parallel.replicate(context.states[method.queries]), search_options)


def run_chosen_rule(context: method.Context, settings: Any) -> method.Prediction:
    """Predict by the rule that leave-one-out chooses on the anchors, and report it in the note."""
    split = context.problem.split
    options = classifiers.AutoOptions(**settings.to_dict())
    anchors = context.states[method.anchors]
    queries = parallel.replicate(context.states[method.queries])
    indices = np.array(rules.sample(split.anchors, split.seed), int)
    ids_N = np.array([example.row for example in split.anchors])
    sample = rules.Sample(split.demo_shots, ids_N[indices], context.y[indices], anchors[indices])
    label_ids = _label_ids(context, options.distance)
    choice = rules.choose([sample], context.head, label_ids, rules.Grid.of(options), options.metric)
    rule = choice.rule
    store = _store(context, rule.distance)
    near = store.search(queries, SearchOptions(rule.k, rule.distance, options.approximate_recall or None))
    inputs_NF = rules.probe_inputs(parallel.replicate(anchors), rule.layer)
    fitted = rules.FittedRule.fit(rule, inputs_NF, context.y, context.num_classes)
    p_QC = fitted.probabilities(
        np.asarray(near.labels_Qk), np.asarray(near.distances_Qk), rules.probe_inputs(queries, rule.layer)
    )
    return method.Prediction.most_probable(p_QC, choice.line)


def _store(context: method.Context, distance: str) -> store_lib.Store:
    """Return a store of the anchors for this distance."""
    label_ids = _label_ids(context, distance)
    return store_lib.build(
        context.store_options, distance, context.head, context.states[method.anchors], context.y, label_ids
    )


def _label_ids(context: method.Context, distance: str) -> Sequence[int]:
    """Return the token of each class; none if classes share a token and this distance, or "auto", can do without."""
    try:
        return context.label_ids
    except errors.UserError:
        if distance != classifiers.AUTO and distances.get(distance).reads_label_words:
            raise
        return ()


def check_distance(problem: method.Problem, settings: classifiers.KNNOptions) -> None:
    """Raise UserError if the distance compares label words and two classes share a token."""
    if distances.get(settings.distance).reads_label_words:
        problem.check_label_words()


METHODS = (
    *method.declare("knn", run, needs=(method.queries, method.anchors), check=check_distance),
    *method.declare("chosen", run_chosen_rule, needs=(method.queries, method.anchors)),
)
