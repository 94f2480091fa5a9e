"""kNN Prompting with any number of neighbours, up to all anchors: the paper's appendix on the choice of k."""

from knnprompt_jax.methods import knn_prompting, method


def fitted(
    context: method.Context, *, k: int = knn_prompting.K, direction: str = "forward"
) -> knn_prompting.KNNPrompting:
    """Unlike `variants.fitted_knn`, without the published rule by which k is never more than a class has anchors."""
    classifier = knn_prompting.KNNPrompting(context.head, range(context.num_classes), k=k, direction=direction)
    return classifier.fit(context.states[method.anchors], context.y)


METHOD = method.on_states("knn", "kNN Prompting", fitted, needs=(method.anchors,))
