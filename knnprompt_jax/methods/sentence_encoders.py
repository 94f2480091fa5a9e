"""Baselines on sentence embeddings, without the language model: logistic regression, and a vote of the nearest train rows.

The encoder embeds the bare texts of the split's demonstrations and anchors and of the queries: no template, several fields joined by
spaces, each embedding scaled to length 1. all-MiniLM-L6-v2: Reimers, Gurevych: "Sentence-BERT", EMNLP 2019, and Wang et al.:
"MiniLM", NeurIPS 2020.
"""

import functools

from knnprompt_jax.methods import baselines, linear_probe, method
from knnprompt_jax.models import encoders
from knnprompt_jax.settings import methods


def run_regression(context: method.Context, settings: methods.EncoderProbeOptions) -> method.Prediction:
    """Fit a regression on the embeddings of demonstrations and anchors, and predict the queries."""
    y = context.classes(context.problem.train_rows)
    train_ND, queries_QD = _embed(context.problem, settings)
    return method.Prediction.most_probable(
        linear_probe.logistic_regression(
            train_ND, y, queries_QD, context.num_classes, settings.inverse_penalty, max_iter=10_000
        )
    )


def run_votes(context: method.Context, settings: methods.EncoderKNNOptions) -> method.Prediction:
    """Predict the majority class of the k train rows with the highest cosine; equal votes go to the lower class."""
    from sklearn import neighbors

    y = context.classes(context.problem.train_rows)
    train_ND, queries_QD = _embed(context.problem, settings)
    # The Euclidean distance of vectors of length 1 ranks as their cosine does.
    voters = neighbors.KNeighborsClassifier(min(settings.k, len(y)), algorithm="brute").fit(train_ND, y)
    return method.Prediction(voters.predict(queries_QD))


def _embed(problem: method.Problem, settings: methods.EncoderOptions) -> list:
    """Return the embeddings of the train rows [N, D] and of the queries [Q, D]."""
    texts = [baselines.bare_texts(problem.task, rows) for rows in (problem.train_rows, problem.evaluation)]
    return [encoders.embed(settings.encoder, settings.pooling, each) for each in texts]


def prepare(problem: method.Problem, settings: methods.EncoderOptions) -> None:
    """Raise UserError if the encoder does not exist or cannot be loaded."""
    del problem
    encoders.describe(settings.encoder, settings.pooling)


_declare = functools.partial(
    method.Method,
    check=baselines.check_rows,
    prepare=prepare,
    by_name="it needs a sentence encoder: name the method to download or load one",
    model_name=lambda settings: settings.encoder,
)
METHODS = (
    _declare("encoder_probe", "Sentence encoder, logistic regression", run_regression),
    _declare("encoder_knn", "Sentence encoder, kNN", run_votes),
)
