"""The majority baseline: always the class that is commonest among the split's train rows, whatever the query.

The rows are the split's demonstrations and anchors, all that kNN Prompting sees too. How common the classes are in the whole
train file, and among the evaluation rows, is hidden from a few-shot method. A split draws as many rows of each class
wherever the train file has them, so that its classes are usually equally common: of these the first in the order of the
task's labels is predicted, and the note beside the result says so.
"""

import numpy as np

from knnprompt_jax import errors, options
from knnprompt_jax.methods import method


def run(context: method.Context, settings: options.Options) -> method.Prediction:
    """Predicts the class with most rows, of equally common ones the lowest; probabilities are the classes' shares."""
    problem = context.problem
    y = context.classes(problem.train_rows)
    counts_C = np.bincount(y, minlength=context.num_classes)
    probabilities_QC = np.tile(counts_C / len(y), (len(problem.evaluation), 1))
    word, most, ties = problem.task.label_words[counts_C.argmax()], counts_C.max(), (counts_C == counts_C.max()).sum()
    note = f"always {word!r}, the class of {most} of {len(y)} train rows in the split"
    if ties > 1:
        note += f"; {ties} classes are equally common, and the first of them is predicted"
    return method.Prediction(probabilities_QC.argmax(-1), probabilities_QC, note)


def check(problem: method.Problem) -> None:
    """Raises UserError where the split has no row at all."""
    if not problem.train_rows:
        raise errors.UserError("the split has no train rows: choose more shots")


METHODS = (method.Method("commonest_class", "Commonest class of the split", "the majority baseline", run, check=check),)
