"""kNN Prompting and its variants (Xu et al., ICLR 2023, Section 3 and appendices), and a rule chosen on the anchors."""

from collections.abc import Sequence

import numpy as np

from knnprompt_jax import distances, errors, rules
from knnprompt_jax.methods import method
from knnprompt_jax.settings import classifiers
from knnprompt_jax.store import kernel
from knnprompt_jax.store import store as store_lib


def run(context: method.Context, options: classifiers.KNNOptions) -> method.Prediction:
    """Predict by the vote of the k nearest anchors, with the k of the released code."""
    return vote(context, options, published_k(options.k, context.problem))


def published_k(k: int, problem: method.Problem) -> int:
    """Return the k of the released code: at most the anchors per class, m − |D|, and at most the number of anchors."""
    split = problem.split
    return min(k, max(1, split.shots - split.demo_shots), len(split.anchors))


def vote(context: method.Context, options: classifiers.KNNOptions, k: int) -> method.Prediction:
    """Predict by the vote of the k nearest anchors; probabilities are the classes' shares of the vote."""
    neighbours = find_neighbours(context, options, k)
    classes_Q, shares_QC = kernel.vote(neighbours, context.num_classes, options.tie_break, options.weights)
    return method.Prediction(classes_Q, shares_QC)


def find_neighbours(context: method.Context, options: classifiers.KNNOptions, k: int) -> kernel.Neighbours:
    """Return the k nearest anchors of each query, or the nearest class mean if the options ask for centroids."""
    store = _build_store(context, options.distance, options.centroid)
    return store.search(context.states[method.queries], k if options.centroid == "none" else 1)


def run_chosen_rule(context: method.Context, options: classifiers.RuleOptions) -> method.Prediction:
    """Predict by the rule that leave-one-out chooses on the anchors, and report it in the note."""
    choice = _choose_rule(context, options)
    rule = choice.rule
    queries = context.states[method.queries]
    neighbours = _build_store(context, rule.distance).search(queries, rule.k)
    anchors_NF = rules.probe_inputs(context.states[method.anchors], rule.layer)
    fitted = rules.FittedRule.fit(rule, anchors_NF, context.y, context.num_classes)
    p_QC = fitted.probabilities(
        np.asarray(neighbours.classes_Qk),
        np.asarray(neighbours.distances_Qk),
        rules.probe_inputs(queries, rule.layer),
    )
    return method.Prediction.most_probable(p_QC, note=choice.line)


def _choose_rule(context: method.Context, options: classifiers.RuleOptions) -> rules.Choice:
    """Choose a rule on a sample of the anchors."""
    split = context.problem.split
    indices_n = np.array(rules.sample(split.anchors, split.seed), int)
    ids_N = np.array([example.row for example in split.anchors])
    states_n = context.states[method.anchors][indices_n]
    sample = rules.Sample(split.demo_shots, ids_N[indices_n], context.y[indices_n], states_n)
    try:
        label_ids = context.label_ids
    except errors.UserError:
        label_ids = []  # Classes share a token: distances between label words are no candidates.
    grid = rules.Grid.of(classifiers.AutoOptions(**options.to_dict()))
    return rules.choose([sample], context.head, label_ids, grid, options.metric)


def _build_store(context: method.Context, distance: str, centroid: str = "none") -> store_lib.Store:
    """Return a store of the anchors, or of their class means, for this distance."""
    return store_lib.build(
        context.store_options,
        distance,
        context.head,
        context.states[method.anchors],
        context.y,
        _label_ids(context, distance),
        centroid=centroid,
    )


def _label_ids(context: method.Context, distance: str) -> Sequence[int]:
    """Return the token of each class if the distance compares label words, otherwise none."""
    return context.label_ids if distances.get(distance).reads_label_words else ()


def check_distance(problem: method.Problem, options: classifiers.KNNOptions) -> None:
    """Raise UserError if the distance compares label words and two classes share a token."""
    if distances.get(options.distance).reads_label_words:
        method.check_label_words_differ(problem)


def check_rule(problem: method.Problem, options: classifiers.RuleOptions) -> None:
    """Raise UserError on an option that the given rule does not use, or as `check_distance`."""
    options.refuse_unused()
    if options.distance != classifiers.AUTO and distances.get(options.distance).reads_label_words:
        method.check_label_words_differ(problem)


METHODS = (
    *method.declare("knn", run, needs=(method.queries, method.anchors), check=check_distance),
    *method.declare("chosen", run_chosen_rule, needs=(method.queries, method.anchors), check=check_rule),
)
