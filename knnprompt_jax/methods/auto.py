"""The pool of experts of `AutoClassifier`, fitted to all train rows of a split."""

from knnprompt_jax.classifier.experts import PoolOptions, near_copies, pool, pool_fitting, views
from knnprompt_jax.common import options as options_lib
from knnprompt_jax.methods import method


class Options(PoolOptions):
    """Options of the pool."""

    unlabelled: bool = options_lib.option(
        False, "Let scores be relative to the rows to classify as well, as Batch Calibration does."
    )


def predict(inputs: method.Inputs, options: Options) -> method.Prediction:
    """Fit the pool and predict the queries; the note has the weights."""
    problem = inputs.problem
    task = problem.task
    rows = problem.train_rows
    model = inputs.model
    shots = views.default_numbers(task, rows, model.count_tokens, model.context, inputs.seed)
    reader = views.PromptReader(model, task, inputs.cache)
    resources = pool_fitting.resources_of(task, model, problem.label_token, options.encoder, inputs.store_options)
    texts = problem.evaluation if options.unlabelled else ()
    text_N = near_copies.number_texts(rows)
    found = pool_fitting.fit(reader, rows, text_N, shots, options.names, resources, inputs.seed, texts)
    p_QC = found.pool.probabilities(found.unlabelled or found.read(reader, problem.evaluation, ""))
    return method.Prediction.from_probabilities(p_QC, note=found.pool.choice.line, sets=reader.sets)


METHODS = (
    method.Method(
        "auto",
        "AutoClassifier",
        predict,
        Options,
        rows_used="train",
        model_name=lambda options: options.encoder,
        code_suffix=f" {pool.VERSION}",
        excluded_because="it reads every row after other demonstrations, and without any: name the method to run it",
    ),
)
