"""ICL ensemble: in-context learning after each of several disjoint sets of demonstrations, the predictions combined.

The paper (Section 4.2.2) cuts the m train rows per class into sets of M_T and does not say how predictions are combined.
"""

import collections
import dataclasses

import numpy as np
from scipy import special

from knnprompt_jax import errors, options
from knnprompt_jax.methods import in_context, method, own_passes
from knnprompt_jax.tasks.splits import FewShotSplit
from knnprompt_jax.tasks.task import Example

COMBINATIONS = ("probability", "log_probability", "vote")


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of the ensemble."""

    combination: str = options.option(
        "probability", "The mean of probabilities or of their logarithms, or a vote.", choices=COMBINATIONS
    )


def demonstration_sets(split: FewShotSplit) -> list[list[Example]]:
    """The split's demonstrations, then as many sets of its anchors as its shots allow, each with as many rows per class.

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


def run(context: method.Context, settings: Settings) -> method.Prediction:
    """Predicts after each set; after the split's demonstrations the shared pass has read the queries already."""
    first, *others = demonstration_sets(context.problem.split)
    passes = own_passes.QueryPasses(context, others)
    states = [context.states[method.queries], *passes.states(f"seed {context.seed}, ICL ensemble")]
    icl = in_context.InContextLearning(context.head, context.label_ids)
    log_p_UQC = special.log_softmax([icl.label_log_probabilities(after_set) for after_set in states], axis=-1)
    probabilities_QC = combine(log_p_UQC, settings.combination)
    return method.Prediction(
        probabilities_QC.argmax(-1),
        probabilities_QC,
        f"{len(states)} sets of {len(first)} demonstrations",
        prompts=passes.prompts,
        truncated=passes.truncated,
    )


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


METHODS = (
    method.Method(
        "icl_ensemble",
        "ICL ensemble",
        "Xu et al., ICLR 2023, Section 4.2.2",
        run,
        needs=(method.queries,),
        settings=Settings,
        check=check,
        # All queries after each set but the first.
        cost=lambda problem, reader, _: own_passes.cost(
            problem, reader, problem.split.shots // problem.split.demo_shots - 1
        ),
        printed_as=("ICL Ensemble",),
        look=6,
    ),
)
