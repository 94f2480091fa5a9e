"""kNN Prompting as people get it by default: what is not named is chosen on the anchors of the split (`classifier.choosing`)."""

import functools
from typing import Any

from knnprompt_jax import parallel
from knnprompt_jax.classifier import options as knn_options
from knnprompt_jax.classifier.estimator import AutoClassifier
from knnprompt_jax.methods import method


def run(context: method.Context, settings: Any) -> method.Prediction:
    """Predicts by the chosen rule, which the note tells; the split's demonstrations stand."""
    problem, split = context.problem, context.problem.split
    classifier = AutoClassifier(
        context.model,
        problem.task,
        **settings.to_dict(),
        label_token=problem.label_token,
        random_state=split.seed,
        store_options=context.store_options,
    )
    classifier.fit_states(context.states[method.anchors], split.demonstrations, split.anchors)
    classes_Q, p_QC, _ = classifier.classify(parallel.replicate(context.states[method.queries]))
    return method.Prediction(classes_Q, p_QC, note=classifier.choice_.line)


_declare = functools.partial(
    method.Method,
    run=run,
    needs=(method.queries, method.anchors),
    by_name="its settings are chosen for each split: name the method to run it",
)
METHODS = (
    _declare("chosen", "kNN Prompting, chosen", "leave-one-out", settings=knn_options.RuleOptions, look=1),
    _declare(
        "knn_chosen",
        "kNN Prompting, tuned votes",
        "leave-one-out",
        settings=method.with_defaults(knn_options.RuleOptions, rule="votes"),
        look=2,
    ),
)
