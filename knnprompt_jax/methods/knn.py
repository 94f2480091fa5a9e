"""kNN Prompting and its variants (Xu et al., ICLR 2023, Section 3 and appendices)."""

from knnprompt_jax.datastore import distances
from knnprompt_jax.datastore import search as search_lib
from knnprompt_jax.datastore import store as store_lib
from knnprompt_jax.datastore.search import KNNOptions
from knnprompt_jax.methods import method


def predict(inputs: method.Inputs, options: KNNOptions) -> method.Prediction:
    """Predict by the vote of the k nearest anchors, with the k of the released code."""
    return vote(inputs, options, released_k(options.k, inputs.problem))


def released_k(k: int, problem: method.Problem) -> int:
    """Return the k of the released code: at most shots − demo_shots, the anchors per class, and at most all anchors."""
    split = problem.split
    return min(k, max(1, split.shots - split.demo_shots), len(split.anchors))


def vote(inputs: method.Inputs, options: KNNOptions, k: int) -> method.Prediction:
    """Predict by the vote of the k nearest anchors; probabilities are the classes' shares of the vote."""
    neighbours = find_neighbours(inputs, options, k)
    classes_Q, shares_QC = search_lib.vote(neighbours, inputs.num_classes)
    return method.Prediction(classes_Q, shares_QC)


def find_neighbours(inputs: method.Inputs, options: KNNOptions, k: int) -> search_lib.Neighbours:
    """Return the k nearest anchors of each query, or the nearest class mean if the options ask for centroids."""
    store = store_lib.build(
        inputs.store_options,
        options.distance,
        inputs.model.head,
        inputs.states[method.ANCHORS],
        inputs.y,
        inputs.problem.label_tokens if distances.get(options.distance).reads_label_words else (),
        centroid=options.centroid,
    )
    return store.search(inputs.states[method.QUERIES], k if options.centroid == "none" else 1)


def check_distance(problem: method.Problem, options: KNNOptions) -> None:
    """Raise UserError if the distance compares label words and two classes share a token."""
    if distances.get(options.distance).reads_label_words:
        method.check_label_words_differ(problem)


_KNN = method.Method(
    "knn",
    "kNN Prompting",
    predict,
    KNNOptions,
    needs=(method.QUERIES, method.ANCHORS),
    check=check_distance,
    printed_as=("kNN Prompting", "LM Distribution + D_KL"),
)
METHODS = (
    _KNN,
    _KNN.variant("knn_reverse_kl", "kNN, KL(anchor ‖ test)", printed_as=_KNN.printed_as, distance="reverse_kl"),
    _KNN.variant("knn_kl_labels", "kNN, label words", printed_as=("kNN Prompting (Partial)",), distance="kl_labels"),
    _KNN.variant("knn_l2", "kNN, L2 of hidden states", printed_as=("Contextual Repr + D_L2",), distance="l2"),
    _KNN.variant("knn_centroid", "Nearest mean distribution", centroid="arithmetic"),
    _KNN.variant("knn_centroid_geometric", "Nearest geometric mean", centroid="geometric"),
)
