"""kNN Prompting with each of its variants, as methods by name (Xu et al., ICLR 2023, Section 3 and its appendices)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from knnprompt_jax import options, parallel
from knnprompt_jax.classifier import options as knn_options
from knnprompt_jax.classifier.estimator import KNNPrompting
from knnprompt_jax.methods import method
from knnprompt_jax.store import distances


def _with_distances(base: type[options.Options], distances_by_name: Sequence[str]) -> type[options.Options]:
    """Options that choose among some distances, of which the first is the default."""
    choice = options.option(distances_by_name[0], "Which way the divergence goes.", choices=distances_by_name)
    return dataclasses.make_dataclass("DistanceOptions", [("distance", str, choice)], bases=(base,), frozen=True)


def published_k(k: int, problem: method.Problem) -> int:
    """The k of the released code: never more than m − |D|, the anchors per class; and no more than there are anchors."""
    split = problem.split
    return min(k, max(1, split.shots - split.demo_shots), len(split.anchors))


def fitted(context: method.Context, settings: Any, **fixed: Any) -> KNNPrompting:
    """The classifier on the context's anchors: those of the pass, or of a saved store."""
    problem = context.problem
    chosen = {**settings.to_dict(), **fixed}
    chosen["k"] = published_k(chosen.get("k", knn_options.KNNOptions.k), problem)
    classifier = KNNPrompting(
        context.model,
        problem.task,
        **chosen,
        label_token=problem.label_token,
        store_options=context.store_options,
    )
    split = problem.split
    if context.store is not None:
        return classifier.use_store(context.store, split.demonstrations, split.anchors)
    return classifier.fit_states(context.states[method.anchors], split.demonstrations, split.anchors)


def run(context: method.Context, settings: Any, **fixed: Any) -> method.Prediction:
    """Predictions with the classes' shares of the vote, and what the anchors took."""
    classifier, states = fitted(context, settings, **fixed), context.states[method.queries]
    classes_Q, shares_QC, _ = classifier.classify(parallel.replicate(states))
    described = classifier.searched_.describe(len(states), classifier.search_options(classifier.rule_.k))
    return method.Prediction(classes_Q, shares_QC, datastore=described)


def _declare(
    name: str, title: str, source: str, settings: type[options.Options], fixed: dict[str, Any], **declared: Any
) -> method.Method:
    """A variant; `fixed` are options that its name says, `declared` as for `Method`."""
    distance = fixed.get("distance") or settings().to_dict()["distance"]
    words = distances.get(distance).reads_label_words
    return method.Method(
        name,
        title,
        f"Xu et al., ICLR 2023, {source}",
        functools.partial(run, **fixed),
        needs=(method.queries, method.anchors),
        settings=settings,
        check=method.label_words_differ if words else method.refuse_nothing,
        searches=True,
        **declared,
    )


_PRINTED = ("kNN Prompting", "LM Distribution + D_KL")
_partial = _with_distances(knn_options.VoteOptions, ("partial", "partial_released"))
_raw = _with_distances(knn_options.VoteOptions, ("partial_raw", "partial_raw_released"))
_centroid = _with_distances(options.Options, distances.DIRECTIONS)
METHODS = (
    _declare("knn", "kNN Prompting", "Eq. 5", knn_options.KNNOptions, {}, look=0, printed_as=_PRINTED),
    _declare(
        "knn_released",
        "kNN, released KL",
        "released code",
        knn_options.VoteOptions,
        {"distance": "released"},
        look=6,
        printed_as=_PRINTED,
    ),
    _declare(
        "knn_partial",
        "kNN, label words",
        "whole and partial distributions",
        _partial,
        {},
        look=4,
        printed_as=("kNN Prompting (Partial)",),
    ),
    _declare("knn_partial_raw", "kNN, label words, raw", "not renormalised", _raw, {}, look=7),
    _declare(
        "knn_l2",
        "kNN, L2 of hidden states",
        "choice of distance",
        knn_options.VoteOptions,
        {"distance": "hidden"},
        look=5,
        printed_as=("Contextual Repr + D_L2",),
    ),
    _declare("knn_centroid", "Nearest mean distribution", "imbalance", _centroid, {"centroid": "arithmetic"}, look=2),
    _declare(
        "knn_centroid_geometric", "Nearest geometric mean", "imbalance", _centroid, {"centroid": "geometric"}, look=3
    ),
)
