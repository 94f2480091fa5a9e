"""The upper bound of demonstration selection: the best of n random prompts, chosen on the evaluation rows themselves.

As in the paper (Section 4.3), a bound and no method: it looks at the labels that it is to predict. A prompt has as many
demonstrations per class as the split, drawn from the split's whole train sample, in random order.
"""

import dataclasses
import random
from collections.abc import Iterator

import numpy as np

from knnprompt_jax import options
from knnprompt_jax.methods import demonstration_selection, in_context, method, own_passes
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of the search."""

    num_prompts: int = options.option(1000, "Random prompts, of which the best is kept.", least=1)


def draws(problem: method.Problem, num_prompts: int) -> Iterator[list[Example]]:
    """The demonstrations of each prompt; the split's seed gives the same, and more prompts begin with those of fewer."""
    generator = random.Random(problem.split.seed)
    classes = splits.group_by_class(problem.train_rows).values()
    for _ in range(num_prompts):
        sample = splits.sample_by_class(classes, problem.split.demo_shots, generator)
        generator.shuffle(sample)
        yield sample


def run(context: method.Context, settings: Settings) -> method.Prediction:
    """Predicts with each prompt and keeps the most accurate, of equal ones the first."""
    problem, icl = context.problem, in_context.InContextLearning(context.head, context.label_ids)
    true_Q = context.classes(problem.evaluation)
    passes = own_passes.QueryPasses(context, draws(problem, settings.num_prompts))
    accuracies, best_QC = [], np.zeros((len(true_Q), context.num_classes))
    for states in passes.states(f"seed {context.seed}, upper bound"):
        probabilities_QC = icl.predict_proba(states)
        accuracies.append(float(np.mean(probabilities_QC.argmax(-1) == true_Q)))
        if accuracies[-1] > max(accuracies[:-1], default=-1.0):
            best_QC = probabilities_QC
    return method.Prediction(
        best_QC.argmax(-1),
        best_QC,
        f"best of {settings.num_prompts} random prompts, CHOSEN ON THE EVALUATION ROWS, hence optimistic",
        tuple(accuracies),
        passes.prompts,
        passes.truncated,
    )


METHODS = (
    method.Method(
        "demonstration_upper_bound",
        "Demonstration selection, upper bound",
        "Xu et al., ICLR 2023, Section 4.3",
        run,
        settings=Settings,
        check=demonstration_selection.check,
        cost=lambda problem, reader, settings: own_passes.cost(problem, reader, settings.num_prompts),
        by_name="it reads the evaluation rows after a thousand prompts: name the method to run it",
        sees="draws",
        printed_as=("DemonSelection (upper)",),
        look=6,
    ),
)
