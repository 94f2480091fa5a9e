"""In-context learning: the most probable label word after the demonstrations (Brown et al., 2020).

"icl" compares one token per label word. "icl_multi_token" compares whole label words: log p(label) is the sum over its
tokens, each after the tokens before it (Brown et al., "Language Models are Few-Shot Learners", NeurIPS 2020, Section
2.4).
"""

from collections.abc import Sequence

import numpy as np

from knnprompt_jax.common import errors
from knnprompt_jax.common.options import Options
from knnprompt_jax.datastore import distances
from knnprompt_jax.inference.prompts import continuations
from knnprompt_jax.methods import method


def predict(inputs: method.Inputs, _: Options) -> method.Prediction:
    """Predict the most probable label word."""
    return method.Prediction.from_probabilities(inputs.label_probabilities(inputs.states[method.QUERIES]))


def check_whole_labels(problem: method.Problem, _: Options) -> None:
    """Raise UserError if two label words have the same tokens."""
    first: dict[tuple[int, ...], str] = {}
    for word, tokens in zip(problem.task.label_words, problem.word_tokens, strict=True):
        if (duplicate := first.setdefault(tuple(tokens), word)) != word:
            raise errors.UserError(f"the label words {duplicate!r} and {word!r} have the same tokens: use other words")


def predict_whole_labels(inputs: method.Inputs, _: Options) -> method.Prediction:
    """Predict the most probable label; probabilities are normalised over the labels.

    The shared pass gives the probabilities of first tokens. Only labels of several tokens need a pass of their own.
    """
    problem = inputs.problem
    first_ids = [tokens[0] for tokens in problem.word_tokens]
    states = inputs.states[method.QUERIES]
    log_p_QC = np.array(distances.label_log_probabilities(inputs.model.head, states, first_ids), np.float64)
    longer = [label for label, tokens in enumerate(problem.word_tokens) if len(tokens) > 1]
    if not longer:
        return method.Prediction.from_scores(log_p_QC)
    texts, index_Q = _further_tokens(problem, longer, inputs.model.context)
    log_p_N = np.array([log_p.sum(dtype=np.float64) for log_p in inputs.score(texts, "whole labels")])
    log_p_QC[index_Q[:, None], longer] += log_p_N.reshape(-1, len(longer))
    return method.Prediction.from_scores(log_p_QC, texts)


def _further_tokens(
    problem: method.Problem, classes: Sequence[int], context: int
) -> tuple[continuations.Continuations, np.ndarray]:
    """Return the texts that score all but the first token of each label, and the index of each prompt [Q].

    The texts of a prompt have the labels of `classes` in this order. A prompt that fills the context loses tokens on
    the left to make room for a label.
    """
    labels = [np.array(problem.word_tokens[label], np.int32) for label in classes]
    prompts = problem.build_prompts(problem.split.demonstrations, problem.evaluation, context)
    families = [
        continuations.Family(
            group.prefix_P,
            [np.append(suffix, label[:1]) for suffix in group.suffixes for label in labels],
            [label[1:] for _ in group.suffixes for label in labels],
        )
        for group in prompts.groups
    ]
    # The last token of a label is scored but not read.
    texts = continuations.build(families, context + 1)
    return texts, np.concatenate([group.number_N for group in prompts.groups])


METHODS = (
    method.Method(
        "icl",
        "In-context learning",
        predict,
        needs=(method.QUERIES,),
        check=method.check_label_words_differ,
        rows_used="demonstrations",
        printed_as=("ICL", "In-Context Learning", "ICL Baseline"),
    ),
    method.Method(
        "icl_multi_token",
        "In-context learning, whole labels",
        predict_whole_labels,
        needs=(method.QUERIES,),
        check=check_whole_labels,
        rows_used="demonstrations",
    ),
)
