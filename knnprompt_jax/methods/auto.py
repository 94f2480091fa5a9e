"""The pool of experts of `AutoClassifier`, fitted to all train rows of a split."""

from knnprompt_jax import errors
from knnprompt_jax.experts import expert, fitting, views
from knnprompt_jax.experts.expert import Readings
from knnprompt_jax.methods import method
from knnprompt_jax.models import encoders
from knnprompt_jax.settings import classifiers


def run(inputs: method.Inputs, options: classifiers.PoolOptions) -> method.Prediction:
    """Fit the pool and predict the queries; the note has the weights."""
    problem = inputs.problem
    task = problem.task
    rows = problem.train_rows
    model = inputs.model
    shots = sorted({views.default_shots(task, rows, model, inputs.seed), 0}, reverse=True)
    dealt = {number: views.deal(rows, number, inputs.seed) for number in shots}
    reader = views.PromptReader(model, task, problem.truncation, inputs.cache)
    layer = expert.layer_of(model.config)
    resources = fitting.resources_of(task, model, problem.label_token, layer, options.encoder, inputs.store_options)
    choice, readings = fitting.choose(reader, rows, dealt, options.names, resources, inputs.seed)
    pool = fitting.Pool.fit(choice, readings, inputs.classes(rows), inputs.num_classes, resources)
    states = {
        number: reader.read_after(
            [rows[index] for index in dealt[number].demonstrations], problem.evaluation, (layer,), ""
        )
        for number in choice.views
    }
    queries = Readings(fitting.joined_texts(task, problem.evaluation), states)
    sets = [prompts for view in dealt.values() for prompts in reader.build_view(rows, view.groups)]
    sets += [reader.build(problem.evaluation, [rows[index] for index in dealt[n].demonstrations]) for n in choice.views]
    return method.Prediction.most_probable(pool.probabilities(queries), note=choice.line, sets=sets)


def cost(problem: method.Problem, counter: method.TokenCounter, options: classifiers.PoolOptions) -> method.Cost:
    """Estimate the cost of reading all rows and queries in two views."""
    rows = [*problem.train_rows, *problem.evaluation]
    num_tokens = counter.query_tokens(problem.task, rows)
    return method.Cost(2 * len(rows), 2 * num_tokens)


def check(problem: method.Problem, options: classifiers.PoolOptions) -> None:
    """Raise UserError if there is no train row, or the encoder cannot be loaded."""
    if not problem.train_rows:
        raise errors.UserError("no train rows: choose more shots")
    if options.encoder:
        encoders.describe(options.encoder)


METHODS = method.declare(
    "auto", run, cost=cost, check=check, rows_used="texts", model_name=lambda options: options.encoder
)
