"""Baselines without a language model: TF-IDF features, or sentence embeddings, of demonstrations and anchors.

Texts are bare: without template, their fields joined by spaces.

Terms of TF-IDF are scikit-learn's: lower-cased words of two or more letters or digits, and runs of neighbouring words.
A term that occurs n times in a text has the weight (1 + ln n) · (1 + ln((1 + N) / (1 + N_term))), with N train rows,
N_term of which contain it. A text's weights are scaled to norm 1. Terms that no train row contains are ignored.

Embeddings are scaled to length 1. all-MiniLM-L6-v2: Reimers, Gurevych: "Sentence-BERT", EMNLP 2019, and Wang et al.:
"MiniLM", NeurIPS 2020.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.methods import hidden_states, method
from knnprompt_jax.models import encoders
from knnprompt_jax.settings import methods
from knnprompt_jax.tasks.task import Example, Task


def bare_texts(task: Task, examples: Sequence[Example]) -> list[str]:
    """Return the fields of each example, joined by spaces, without any template."""
    return [" ".join(example.fields[field] for field in task.fields) for example in examples]


def run_tfidf(context: method.Context, options: methods.TfidfOptions) -> method.Prediction:
    """Fit on demonstrations and anchors, and predict the queries."""
    problem = context.problem
    p_QC = predict_proba(
        options,
        context.num_classes,
        bare_texts(problem.task, problem.train_rows),
        context.classes(problem.train_rows),
        bare_texts(problem.task, problem.evaluation),
    )
    return method.Prediction.most_probable(p_QC)


def predict_proba(
    options: methods.TfidfOptions, num_classes: int, texts: Sequence[str], y: np.ndarray, queries: Sequence[str]
) -> np.ndarray:
    """Return class probabilities [Q, C] of queries, from N texts with at least one word and their classes `y` [N].

    A query without known terms gets the probabilities of the intercepts. A class without texts has probability 0.
    """
    vectorizer = _vectorizer(options.ngrams)
    x_NF = vectorizer.fit_transform(texts)
    x_QF = vectorizer.transform(queries)
    return hidden_states.logistic_regression(x_NF, y, x_QF, num_classes, options.inverse_penalty, max_iter=10_000)


def check_words(problem: method.Problem, _: methods.TfidfOptions) -> None:
    """Raise UserError if no train row has a word."""
    words = _vectorizer(1).build_analyzer()
    if not any(words(text) for text in bare_texts(problem.task, problem.train_rows)):
        raise errors.UserError("no train row of the split has a word of two or more letters or digits")


def _vectorizer(ngrams: int) -> Any:
    from sklearn.feature_extraction import text

    return text.TfidfVectorizer(ngram_range=(1, ngrams), sublinear_tf=True)


def run_regression(context: method.Context, options: methods.EncoderProbeOptions) -> method.Prediction:
    """Fit a regression on the embeddings of demonstrations and anchors, and predict the queries."""
    problem = context.problem
    p_QC = hidden_states.logistic_regression(
        _embed(problem.task, problem.train_rows, options),
        context.classes(problem.train_rows),
        _embed(problem.task, problem.evaluation, options),
        context.num_classes,
        options.inverse_penalty,
        max_iter=10_000,
    )
    return method.Prediction.most_probable(p_QC)


def run_votes(context: method.Context, options: methods.EncoderKNNOptions) -> method.Prediction:
    """Predict the majority class of the k train rows with the highest cosine; equal votes go to the lower class."""
    from sklearn import neighbors

    problem = context.problem
    y = context.classes(problem.train_rows)
    train_ND = _embed(problem.task, problem.train_rows, options)
    queries_QD = _embed(problem.task, problem.evaluation, options)
    # The Euclidean distance of vectors of length 1 ranks as their cosine does.
    voters = neighbors.KNeighborsClassifier(min(options.k, len(y)), algorithm="brute").fit(train_ND, y)
    return method.Prediction(voters.predict(queries_QD))


def _embed(task: Task, rows: Sequence[Example], options: methods.EncoderOptions) -> np.ndarray:
    """Return the embeddings [N, D] of the rows' bare texts."""
    return encoders.embed(options.encoder, options.pooling, bare_texts(task, rows))


def check_encoder(_: method.Problem, options: methods.EncoderOptions) -> None:
    """Raise UserError if the encoder does not exist or cannot be loaded."""
    encoders.describe(options.encoder, options.pooling)


def encoder_name(options: methods.EncoderOptions) -> str:
    """Return the name of the sentence encoder."""
    return options.encoder


METHODS = (
    *method.declare("tfidf", run_tfidf, check=check_words, rows_used="texts"),
    *method.declare("encoder_probe", run_regression, check=check_encoder, rows_used="texts", model_name=encoder_name),
    *method.declare("encoder_knn", run_votes, check=check_encoder, rows_used="texts", model_name=encoder_name),
)
