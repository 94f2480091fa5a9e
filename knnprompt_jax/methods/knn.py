"""kNN Prompting and its variants (Xu et al., ICLR 2023, Section 3 and its appendices), and the classifier that chooses its settings."""

import functools
from typing import Any

from knnprompt_jax import parallel
from knnprompt_jax.classifier.estimator import AutoClassifier, KNNPrompting
from knnprompt_jax.methods import method
from knnprompt_jax.settings import classifiers, methods
from knnprompt_jax.store import distances


def published_k(k: int, problem: method.Problem) -> int:
    """Return the k of the released code: at most m − |D|, the anchors per class, and at most the number of anchors."""
    split = problem.split
    return min(k, max(1, split.shots - split.demo_shots), len(split.anchors))


def fitted(context: method.Context, settings: Any, **overrides: Any) -> KNNPrompting:
    """Return the classifier on the context's anchors, from their states or from a saved store."""
    problem, split = context.problem, context.problem.split
    options = {**settings.to_dict(), **overrides}
    options["k"] = published_k(options.get("k", classifiers.KNNOptions.k), problem)
    options |= {"label_token": problem.label_token, "store_options": context.store_options}
    classifier = KNNPrompting(context.model, problem.task, **options)
    return classifier.fit_states(context.states[method.anchors], split.demonstrations, split.anchors)


def run(context: method.Context, settings: Any, **overrides: Any) -> method.Prediction:
    """Predict by vote; probabilities are the classes' shares of the vote."""
    classifier, states = fitted(context, settings, **overrides), context.states[method.queries]
    classes_Q, shares_QC, _ = classifier.classify(parallel.replicate(states))
    return method.Prediction(classes_Q, shares_QC)


def run_auto_classifier(context: method.Context, settings: Any) -> method.Prediction:
    """Predict by the rule that leave-one-out chooses on the anchors, and report it in the note."""
    problem, split = context.problem, context.problem.split
    options = settings.to_dict() | {"label_token": problem.label_token, "store_options": context.store_options}
    classifier = AutoClassifier(context.model, problem.task, **options, random_state=split.seed)
    classifier.fit_states(context.states[method.anchors], split.demonstrations, split.anchors)
    classes_Q, p_QC, _ = classifier.classify(parallel.replicate(context.states[method.queries]))
    return method.Prediction(classes_Q, p_QC, note=classifier.choice_.line)


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


_declare_auto = functools.partial(
    method.Method,
    run=run_auto_classifier,
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
    _declare_auto("chosen", "AutoClassifier, last layer"),
    _declare_auto("knn_chosen", "AutoClassifier, votes only"),
)
