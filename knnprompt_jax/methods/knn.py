"""kNN Prompting and its variants (Xu et al., ICLR 2023, Section 3 and appendices)."""

from collections.abc import Sequence

from knnprompt_jax import distances
from knnprompt_jax.methods import method
from knnprompt_jax.settings import classifiers
from knnprompt_jax.store import search as search_lib
from knnprompt_jax.store import store as store_lib


def run(context: method.Context, options: classifiers.KNNOptions) -> method.Prediction:
    """Predict by the vote of the k nearest anchors, with the k of the released code."""
    return vote(context, options, published_k(options.k, context.problem))


def published_k(k: int, problem: method.Problem) -> int:
    """Return the k of the released code: at most shots − demo_shots, the anchors per class, and at most all anchors."""
    split = problem.split
    return min(k, max(1, split.shots - split.demo_shots), len(split.anchors))


def vote(context: method.Context, options: classifiers.KNNOptions, k: int) -> method.Prediction:
    """Predict by the vote of the k nearest anchors; probabilities are the classes' shares of the vote."""
    neighbours = find_neighbours(context, options, k)
    classes_Q, shares_QC = search_lib.vote(neighbours, context.num_classes, options.tie_break, options.weights)
    return method.Prediction(classes_Q, shares_QC)


def find_neighbours(context: method.Context, options: classifiers.KNNOptions, k: int) -> search_lib.Neighbours:
    """Return the k nearest anchors of each query, or the nearest class mean if the options ask for centroids."""
    store = _build_store(context, options.distance, options.centroid)
    return store.search(context.states[method.queries], k if options.centroid == "none" else 1)


def _build_store(context: method.Context, distance: str, centroid: str) -> store_lib.Store:
    """Return a store of the anchors, or of their class means, for this distance."""
    return store_lib.build(
        context.store_options,
        distance,
        context.head,
        context.states[method.anchors],
        context.y,
        _label_tokens(context, distance),
        centroid=centroid,
    )


def _label_tokens(context: method.Context, distance: str) -> Sequence[int]:
    """Return the token of each class if the distance compares label words, otherwise none."""
    return context.label_tokens if distances.get(distance).reads_label_words else ()


def check_distance(problem: method.Problem, options: classifiers.KNNOptions) -> None:
    """Raise UserError if the distance compares label words and two classes share a token."""
    if distances.get(options.distance).reads_label_words:
        method.check_label_words_differ(problem)


METHODS = method.declare("knn", run, needs=(method.queries, method.anchors), check=check_distance)
