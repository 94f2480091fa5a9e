"""In-context learning and kNN Prompting, with each of its variants, as methods by name."""

import functools
from typing import Any

from knnprompt_jax.methods import in_context, knn_prompting, method


def fitted_icl(context: method.Context) -> in_context.InContextLearning:
    return in_context.InContextLearning(context.head, context.label_ids).fit()


def fitted_knn(
    context: method.Context,
    *,
    k: int = knn_prompting.K,
    direction: str = "forward",
    representation: str = "distribution",
    tie_break: str = "lowest",
    centroid: str = "none",
) -> knn_prompting.KNNPrompting:
    """`k` follows the published rule: never more than the anchors of a class."""
    split = context.problem.split
    # Where label words are not read, only their number counts: they may well share tokens.
    reads_words = representation.startswith("partial")
    classifier = knn_prompting.KNNPrompting(
        context.head,
        context.label_ids if reads_words else range(context.num_classes),
        k=min(knn_prompting.published_k(k, split.shots - split.demo_shots), len(split.anchors)),
        direction=direction,
        representation=representation,
        tie_break=tie_break,
        centroid=centroid,
    )
    return classifier.fit(context.states[method.anchors], context.y)


def prepare_knn(problem: method.Problem, *, k: int, **options: Any) -> None:
    """Raises UserError on a value outside its choices."""
    knn_prompting.published_k(k, k)
    knn_prompting.KNNPrompting(method.UNLOADED, range(problem.task.num_classes), **options)


_knn = functools.partial(method.on_states, fitted=fitted_knn, needs=(method.anchors,), prepare=prepare_knn)
_partial = functools.partial(_knn, check=method.label_words_differ)
METHODS = (
    method.on_states("icl", "In-context learning", fitted_icl, check=method.label_words_differ),
    _knn("knn", "kNN Prompting"),
    _knn("knn_released", "kNN, released KL", direction="released"),
    _partial("knn_partial", "kNN, label words", representation="partial"),
    _partial("knn_partial_raw", "kNN, label words, raw", representation="partial_raw"),
    _knn("knn_l2", "kNN, L2 of hidden states", representation="hidden"),
    _knn("knn_centroid", "Nearest mean distribution", centroid="arithmetic"),
    _knn("knn_centroid_geometric", "Nearest geometric mean", centroid="geometric"),
)
