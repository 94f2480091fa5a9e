"""Baselines without a language model, on bare texts of demonstrations and anchors: TF-IDF features, or sentence embeddings.

Bare texts have no template; several fields are joined by spaces.

Terms of TF-IDF are scikit-learn's: lower-cased words of two or more letters or digits, and runs of neighbouring words. A term that
occurs n times in a text has the weight (1 + ln n) · (1 + ln((1 + N) / (1 + N_term))), with N train rows, N_term of which contain it.
A text's weights are scaled to norm 1. Terms that no train row contains are ignored.

Embeddings are scaled to length 1. all-MiniLM-L6-v2: Reimers, Gurevych: "Sentence-BERT", EMNLP 2019, and Wang et al.: "MiniLM",
NeurIPS 2020.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.methods import hidden_states, method
from knnprompt_jax.models import encoders
from knnprompt_jax.settings import methods
from knnprompt_jax.tasks.task import Example, Task


def predict_proba(
    settings: methods.TfidfOptions, num_classes: int, texts: Sequence[str], y: np.ndarray, queries: Sequence[str]
) -> np.ndarray:
    """Return class probabilities [Q, C] of queries, from N texts with at least one word and their classes `y` [N].

    A query without known terms gets the probabilities of the intercepts. A class without texts has probability 0.
    """
    vectorizer = _vectorizer(settings.ngrams)
    x_NF, x_QF = vectorizer.fit_transform(texts), vectorizer.transform(queries)
    return hidden_states.logistic_regression(x_NF, y, x_QF, num_classes, settings.inverse_penalty, max_iter=10_000)


def bare_texts(task: Task, examples: Sequence[Example]) -> list[str]:
    """Return the fields of each example, joined by spaces, without any template."""
    return [" ".join(example.fields[field] for field in task.fields) for example in examples]


def run_tfidf(context: method.Context, settings: methods.TfidfOptions) -> method.Prediction:
    """Fit on demonstrations and anchors and predict the queries."""
    problem = context.problem
    texts, queries = (bare_texts(problem.task, rows) for rows in (problem.train_rows, problem.evaluation))
    y = context.classes(problem.train_rows)
    return method.Prediction.most_probable(predict_proba(settings, context.num_classes, texts, y, queries))


def check_words(problem: method.Problem, _: methods.TfidfOptions) -> None:
    """Raise UserError if no train row has a word."""
    words = _vectorizer(1).build_analyzer()
    if not any(words(text) for text in bare_texts(problem.task, problem.train_rows)):
        raise errors.UserError("no train row of the split has a word of two or more letters or digits")


def _vectorizer(ngrams: int) -> Any:
    from sklearn.feature_extraction import text

    return text.TfidfVectorizer(ngram_range=(1, ngrams), sublinear_tf=True)


def run_regression(context: method.Context, settings: methods.EncoderProbeOptions) -> method.Prediction:
    """Fit a regression on the embeddings of demonstrations and anchors, and predict the queries."""
    y = context.classes(context.problem.train_rows)
    train_ND, queries_QD = _embed(context.problem, settings)
    return method.Prediction.most_probable(
        hidden_states.logistic_regression(
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
    sets = [bare_texts(problem.task, rows) for rows in (problem.train_rows, problem.evaluation)]
    return [encoders.embed(settings.encoder, settings.pooling, texts) for texts in sets]


def check_encoder(problem: method.Problem, settings: methods.EncoderOptions) -> None:
    """Raise UserError if the encoder does not exist or cannot be loaded."""
    del problem
    encoders.describe(settings.encoder, settings.pooling)


_ON_ENCODER = {"rows_used": "texts", "check": check_encoder, "model_name": lambda options: options.encoder}
METHODS = (
    *method.declare("tfidf", run_tfidf, check=check_words, rows_used="texts"),
    *method.declare("encoder_probe", run_regression, **_ON_ENCODER),
    *method.declare("encoder_knn", run_votes, **_ON_ENCODER),
)
