"""The pool of experts of `AutoClassifier`, fitted to all train rows of a split."""

from knnprompt_jax.classifier.experts import PoolOptions, expert, pool_fitting, views
from knnprompt_jax.classifier.experts.expert import Readings
from knnprompt_jax.methods import method
from knnprompt_jax.models import encoders


def predict(inputs: method.Inputs, options: PoolOptions) -> method.Prediction:
    """Fit the pool and predict the queries; the note has the weights."""
    problem = inputs.problem
    task = problem.task
    rows = problem.train_rows
    model = inputs.model
    numbers = views.default_numbers(task, rows, model.count_tokens, model.context, inputs.seed)
    numbers = expert.views_of(options.names, numbers)
    dealt = {number: views.deal(rows, number, inputs.seed) for number in numbers}
    reader = views.PromptReader(model, task, inputs.cache)
    blocks = expert.blocks_of(model.config)
    needs = {"encoder": options.encoder, "store_options": inputs.store_options}
    resources = pool_fitting.resources_of(task, model, problem.label_token, **needs)
    weighed = pool_fitting.weigh(reader, rows, [*dealt], options.names, blocks, resources, inputs.seed)
    pool = pool_fitting.Pool.fit(weighed.choice, weighed.readings, inputs.classes(rows), inputs.num_classes, resources)
    states = {
        number: reader.read_after(weighed.demonstrations[number], problem.evaluation, tuple(read.blocks), "")
        for number, read in weighed.readings.states.items()
    }
    queries = Readings(pool_fitting.joined_texts(task, problem.evaluation), states)
    sets = [prompts for view in dealt.values() for prompts in reader.build_view(rows, view.groups)]
    sets += [reader.build(problem.evaluation, demonstrations) for demonstrations in weighed.demonstrations.values()]
    return method.Prediction.from_probabilities(pool.probabilities(queries), note=weighed.choice.line, sets=sets)


def check(problem: method.Problem, options: PoolOptions) -> None:
    """Raise UserError if the encoder cannot be loaded."""
    if options.encoder:
        encoders.describe(options.encoder)


METHODS = (
    method.Method(
        "auto",
        "AutoClassifier",
        predict,
        PoolOptions,
        check=check,
        rows_used="train",
        model_name=lambda options: options.encoder,
        excluded_because="it reads every row after other demonstrations, and without any: name the method to run it",
    ),
)
