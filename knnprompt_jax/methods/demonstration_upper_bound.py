"""The upper bound of demonstration selection: the best of n random prompts, chosen on the evaluation rows themselves.

As in the paper (Section 4.3), a bound and no method: it looks at the labels that it is to predict. A prompt has as many
demonstrations a class as the split, drawn from the split's whole train sample, in random order.
"""

import random
from collections.abc import Iterator

import numpy as np

from knnprompt_jax import errors, parallel, progress
from knnprompt_jax.methods import demonstration_selection, method, variants
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.task import Example

NUM_PROMPTS = 1000


def draws(problem: method.Problem, num_prompts: int) -> Iterator[list[Example]]:
    """The demonstrations of each prompt; the split's seed gives the same, and more prompts begin with those of fewer."""
    generator = random.Random(problem.split.seed)
    classes = splits.group_by_class([*problem.split.demonstrations, *problem.split.anchors]).values()
    for _ in range(num_prompts):
        sample = splits.sample_by_class(classes, problem.split.demo_shots, generator)
        generator.shuffle(sample)
        yield sample


def run(context: method.Context, *, num_prompts: int = NUM_PROMPTS) -> method.Prediction:
    """Predicts with each prompt and keeps the most accurate, of equal ones the first."""
    problem, model, icl = context.problem, context.model, variants.fitted_icl(context)
    true_Q = context.classes(problem.evaluation)
    laid_out = [
        layout.lay_out(problem.task, sample, problem.evaluation, problem.tokenize, model.context, problem.truncation)
        for sample in draws(problem, num_prompts)
    ]
    groups = (group for prompts in laid_out for group in prompts.groups)
    shapes = packing.choose_shapes(groups, model.step_tokens, model.mesh.shape[parallel.DATA])
    accuracies, best_QC = [], np.zeros((len(true_Q), context.num_classes))
    with progress.bar(sum(prompts.num_prompts for prompts in laid_out), f"seed {context.seed}, upper bound") as report:
        for prompts in laid_out:
            states = model.states(prompts, lambda group: shapes[bool(len(group.prefix_P))], report)
            probabilities_QC = icl.predict_proba(states[:])  # Whole on every device.
            accuracies.append(float(np.mean(probabilities_QC.argmax(-1) == true_Q)))
            if accuracies[-1] > max(accuracies[:-1], default=-1.0):
                best_QC = probabilities_QC
    note = f"best of {num_prompts} random prompts, CHOSEN ON THE EVALUATION ROWS, hence optimistic"
    return method.Prediction(best_QC.argmax(-1), best_QC, note, tuple(accuracies))


def prepare(problem: method.Problem, *, num_prompts: int) -> None:
    """Raises UserError where there is no prompt."""
    del problem
    if num_prompts < 1:
        raise errors.UserError(f"num_prompts={num_prompts}: at least 1 prompt is needed")


METHODS = (
    method.Method(
        "demonstration_upper_bound",
        "Demonstration selection, upper bound",
        run,
        options={"num_prompts": NUM_PROMPTS},
        check=demonstration_selection.check,
        prepare=prepare,
        by_name="it reads the evaluation rows after a thousand prompts: name the method to run it",
    ),
)
