"""kNN Prompting and its variants (Xu et al., ICLR 2023, Section 3 and its appendices), and the rule that its anchors choose."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors, parallel, rules
from knnprompt_jax.methods import method
from knnprompt_jax.settings import classifiers, methods
from knnprompt_jax.store import distances, kernel
from knnprompt_jax.store import store as store_lib
from knnprompt_jax.store.search import SearchOptions


def published_k(k: int, problem: method.Problem) -> int:
    """Return the k of the released code: at most m − |D|, the anchors per class, and at most the number of anchors."""
    split = problem.split
    return min(k, max(1, split.shots - split.demo_shots), len(split.anchors))


def run(context: method.Context, settings: Any, **overrides: Any) -> method.Prediction:
    """Predict by vote; probabilities are the classes' shares of the vote."""
    options = classifiers.KNNOptions(**{**settings.to_dict(), **overrides})
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


def _declare(name: str, title: str, printed_as: tuple[str, ...] = (), **overrides: Any) -> method.Method:
    """Declare a variant; `overrides` are the options that its name sets."""
    distance = distances.get(overrides.get("distance") or methods.METHODS[name]().to_dict()["distance"])
    return method.Method(
        name,
        title,
        functools.partial(run, **overrides),
        needs=(method.queries, method.anchors),
        check=method.check_label_words_differ if distance.reads_label_words else method.accept_all,
        searches=True,
        printed_as=printed_as,
    )


_declare_chosen = functools.partial(
    method.Method,
    run=run_chosen_rule,
    needs=(method.queries, method.anchors),
    excluded_because="its settings are chosen for each split: name the method to run it",
)
_PRINTED = ("kNN Prompting", "LM Distribution + D_KL")
METHODS = (
    _declare("knn", "kNN Prompting", _PRINTED),
    _declare("knn_reverse_kl", "kNN, KL(anchor ‖ test)", _PRINTED, distance="reverse_kl"),
    _declare("knn_kl_labels", "kNN, label words", ("kNN Prompting (Partial)",)),
    _declare("knn_l2", "kNN, L2 of hidden states", ("Contextual Repr + D_L2",), distance="l2"),
    _declare("knn_centroid", "Nearest mean distribution", centroid="arithmetic"),
    _declare("knn_centroid_geometric", "Nearest geometric mean", centroid="geometric"),
    _declare_chosen("chosen", "AutoClassifier, last layer"),
    _declare_chosen("knn_chosen", "AutoClassifier, votes only"),
)
