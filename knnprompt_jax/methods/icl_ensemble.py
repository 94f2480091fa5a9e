"""ICL ensemble: in-context learning after each of several disjoint sets of demonstrations, the predictions combined.

The paper (Section 4.2.2) cuts the m train rows a class into sets of M_T and does not say how predictions are combined.
"""

import collections
from collections.abc import Iterator, Sequence

import numpy as np
from scipy import special

from knnprompt_jax import errors, lm, parallel, progress
from knnprompt_jax.methods import method
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.store import representations
from knnprompt_jax.tasks.splits import FewShotSplit
from knnprompt_jax.tasks.task import Example

COMBINATIONS = ("probability", "log_probability", "vote")


def demonstration_sets(split: FewShotSplit) -> list[list[Example]]:
    """The split's demonstrations, then as many sets of its anchors as its shots allow, each with as many rows a class.

    A set takes the next rows of each class, in the order of the anchors. Rows that do not make a set are left over; a
    class that runs out is missing from the later sets.
    """
    sets: list[list[Example]] = [[] for _ in range(split.shots // split.demo_shots - 1)]
    seen: collections.Counter[str] = collections.Counter()
    for example in split.anchors:
        number = seen[example.label] // split.demo_shots
        seen[example.label] += 1
        if number < len(sets):
            sets[number].append(example)
    return [list(split.demonstrations), *filter(None, sets)]


def combine(log_p_UQC: np.ndarray, combination: str) -> np.ndarray:
    """Class probabilities [Q, C] from the log-probabilities of U predictions, each normalised over the classes.

    "probability" is their mean, "log_probability" the normalised mean of logarithms, "vote" the shares of their first
    choices.
    """
    if combination == "probability":
        return np.exp(special.logsumexp(log_p_UQC, axis=0) - np.log(len(log_p_UQC)))
    if combination == "log_probability":
        return special.softmax(log_p_UQC.mean(0), axis=-1)
    return np.eye(log_p_UQC.shape[-1])[log_p_UQC.argmax(-1)].mean(0)


def run(context: method.Context, *, combination: str = COMBINATIONS[0]) -> method.Prediction:
    """Predicts after each set; after the split's own demonstrations the shared pass has read the queries already."""
    first, *others = demonstration_sets(context.problem.split)
    states = [context.states[method.queries], *_states(context, others)]
    log_p_UQC = np.stack([_label_log_probabilities(context, own) for own in states])
    probabilities_QC = combine(log_p_UQC, combination)
    return method.Prediction(
        probabilities_QC.argmax(-1), probabilities_QC, f"{len(states)} sets of {len(first)} demonstrations"
    )


def _states(context: method.Context, sets: Sequence[Sequence[Example]]) -> Iterator[lm.States]:
    """States of the queries after each set of demonstrations."""
    problem, model = context.problem, context.model
    prompts = [
        layout.lay_out(problem.task, own, problem.evaluation, problem.tokenize, model.context, problem.truncation)
        for own in sets
    ]
    groups = (group for own in prompts for group in own.groups)
    shapes = packing.choose_shapes(groups, model.step_tokens, model.mesh.shape[parallel.DATA])
    with progress.bar(sum(own.num_prompts for own in prompts), f"seed {context.seed}, ICL ensemble") as report:
        for own in prompts:
            states = model.states(own, lambda group: shapes[bool(len(group.prefix_P))], report)
            yield states[:]  # Whole on every device.


def _label_log_probabilities(context: method.Context, states: lm.States) -> np.ndarray:
    log_p_QC = representations.label_log_probabilities(context.head, states, context.label_ids)
    return special.log_softmax(np.asarray(log_p_QC, np.float64), axis=-1)


def check(problem: method.Problem) -> None:
    """Raises UserError where the shots do not make two sets, or where classes share a label token."""
    method.label_words_differ(problem)
    shots, demo_shots = problem.split.shots, problem.split.demo_shots
    if demo_shots < 1:
        raise errors.UserError("demo_shots=0: there are no sets of demonstrations to ensemble; choose 1 or more")
    if shots < 2 * demo_shots:
        raise errors.UserError(
            f"shots={shots} of which demo_shots={demo_shots} make a set: two sets need {2 * demo_shots} shots or more, "
            f"or demo_shots of {shots // 2} or fewer"
        )
    if not problem.split.anchors:
        raise errors.UserError("there are no anchors to make a second set of: choose more shots")


def prepare(problem: method.Problem, *, combination: str) -> None:
    """Raises UserError on an unknown combination."""
    del problem
    if combination not in COMBINATIONS:
        raise errors.UserError(f"combination={combination!r}: choose from {', '.join(COMBINATIONS)}")


METHODS = (
    method.Method(
        "icl_ensemble",
        "ICL ensemble",
        run,
        needs=(method.queries,),
        options={"combination": COMBINATIONS[0]},
        check=check,
        prepare=prepare,
    ),
)
