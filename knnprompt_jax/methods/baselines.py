"""Baselines without a language model: TF-IDF features, or sentence embeddings, of demonstrations and anchors.

Texts are bare: without template, their fields joined by spaces. TF-IDF is the expert `words` of `AutoClassifier`.

Embeddings are scaled to length 1. all-MiniLM-L6-v2: Reimers, Gurevych: "Sentence-BERT", EMNLP 2019, and Wang et al.:
"MiniLM", NeurIPS 2020.
"""

import functools
from collections.abc import Sequence

import numpy as np

from knnprompt_jax.classifier.experts import pool_fitting
from knnprompt_jax.common.options import Options, option
from knnprompt_jax.methods import hidden_states, method
from knnprompt_jax.models import encoders
from knnprompt_jax.tasks.task import Example, Task

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
NEEDS_ENCODER = "it needs a sentence encoder: name the method to download or load one"


class EncoderOptions(Options):
    """Options of the baselines on sentence embeddings."""

    encoder: str = option(MINILM, "A sentence encoder by Hub name or folder.", nonempty=True)


class EncoderProbeOptions(EncoderOptions):
    """Options of the regression on sentence embeddings."""

    inverse_penalty: float = option(1.0, "scikit-learn's C, with its default.", least=1e-6)


class EncoderKNNOptions(EncoderOptions):
    """Options of the vote of the nearest train rows."""

    k: int = option(3, "Neighbours that vote.", least=1)


def predict_by_tfidf(inputs: method.Inputs, _: Options) -> method.Prediction:
    """Fit the expert on demonstrations and anchors, and predict the queries."""
    problem = inputs.problem
    texts = pool_fitting.joined_texts(problem.task, problem.train_rows)
    queries = pool_fitting.joined_texts(problem.task, problem.evaluation)
    p_QC = pool_fitting.predict_by_words(texts, inputs.classes(problem.train_rows), queries, inputs.num_classes)
    return method.Prediction.from_probabilities(p_QC)


def predict_by_regression(inputs: method.Inputs, options: EncoderProbeOptions) -> method.Prediction:
    """Fit a regression on the embeddings of demonstrations and anchors, and predict the queries."""
    problem = inputs.problem
    p_QC = hidden_states.logistic_regression(
        _embed(problem.task, problem.train_rows, options),
        inputs.classes(problem.train_rows),
        _embed(problem.task, problem.evaluation, options),
        inputs.num_classes,
        options.inverse_penalty,
        max_iter=10_000,
    )
    return method.Prediction.from_probabilities(p_QC)


def predict_by_votes(inputs: method.Inputs, options: EncoderKNNOptions) -> method.Prediction:
    """Predict the majority class of the k train rows with the highest cosine; equal votes go to the lower class."""
    from sklearn import neighbors

    problem = inputs.problem
    y = inputs.classes(problem.train_rows)
    train_ND = _embed(problem.task, problem.train_rows, options)
    queries_QD = _embed(problem.task, problem.evaluation, options)
    # The Euclidean distance of vectors of length 1 ranks as their cosine does.
    voters = neighbors.KNeighborsClassifier(min(options.k, len(y)), algorithm="brute").fit(train_ND, y)
    return method.Prediction(voters.predict(queries_QD))


def _embed(task: Task, rows: Sequence[Example], options: EncoderOptions) -> np.ndarray:
    """Return the embeddings [N, D] of the rows' bare texts."""
    return encoders.embed(options.encoder, pool_fitting.joined_texts(task, rows))


_on_embeddings = functools.partial(
    method.Method,
    rows_used="train",
    model_name=lambda options: options.encoder,
    excluded_because=NEEDS_ENCODER,
)
METHODS = (
    method.Method("tfidf", "TF-IDF, ridge regression", predict_by_tfidf, rows_used="train"),
    _on_embeddings(
        "encoder_probe", "Sentence encoder, logistic regression", predict_by_regression, EncoderProbeOptions
    ),
    _on_embeddings("encoder_knn", "Sentence encoder, kNN", predict_by_votes, EncoderKNNOptions),
)
