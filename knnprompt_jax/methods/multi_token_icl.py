"""In-context learning by whole label words: the label whose tokens together are most probable after the demonstrations.

log p(label) is the sum over its tokens, each after those before it (Brown et al., "Language Models are Few-Shot
Learners", NeurIPS 2020, Section 2.4). Where every label is one token this is in-context learning as the paper has it.
"""

from collections.abc import Sequence

import numpy as np
from scipy import special

from knnprompt_jax import errors, options, progress
from knnprompt_jax.methods import method
from knnprompt_jax.prompts import continuations
from knnprompt_jax.store import representations


def label_tokens(problem: method.Problem) -> list[np.ndarray]:
    """The tokens of a blank and each label word, without special ones; raises UserError where two words have the same tokens."""
    first: dict[tuple[int, ...], str] = {}
    for word, tokens in zip(problem.task.label_words, problem.word_tokens, strict=True):
        if (other := first.setdefault(tuple(tokens), word)) != word:
            raise errors.UserError(
                f"task {problem.task.name!r}: the label words {other!r} and {word!r} are the same tokens, so their "
                "classes cannot be told apart: use other label words"
            )
    return [np.array(tokens, np.int32) for tokens in problem.word_tokens]


def run(context: method.Context, settings: options.Options) -> method.Prediction:
    """Predicts the most probable label; probabilities are normalised over the labels.

    First tokens are read off the states of the shared pass; only labels of several tokens cost a pass. There a prompt
    that fills the context loses tokens on the left to make place for its label.
    """
    labels = label_tokens(context.problem)
    first_ids = [int(tokens[0]) for tokens in labels]
    states = context.states[method.queries]
    log_p_QC = np.asarray(representations.label_log_probabilities(context.head, states, first_ids), np.float64)
    longer = [label for label, tokens in enumerate(labels) if len(tokens) > 1]
    prompts = truncated = 0
    if longer:
        families, places = _families(context, [labels[label] for label in longer])
        # The last token of a label is scored and not read.
        texts = continuations.lay_out(families, context.model.context + 1)
        log_p_QC[:, longer] += _scores(context, texts, len(longer))[places]
        prompts, truncated = texts.num_texts, texts.num_truncated
    probabilities_QC = special.softmax(log_p_QC, axis=-1)
    return method.Prediction(log_p_QC.argmax(-1), probabilities_QC, prompts=prompts, truncated=truncated)


def _families(context: method.Context, labels: Sequence[np.ndarray]) -> tuple[list[continuations.Family], np.ndarray]:
    """The labels' tokens from the second on, after each query and their first; and where each query's stand among all [Q]."""
    problem = context.problem
    prompts = problem.lay_out(problem.split.demonstrations, context.model.context)
    families = [
        continuations.Family(
            group.prefix_P,
            [np.append(suffix, tokens[:1]) for suffix in group.suffixes for tokens in labels],
            [tokens[1:] for _ in group.suffixes for tokens in labels],
        )
        for group in prompts.groups
    ]
    return families, np.argsort(np.concatenate([group.index for group in prompts.groups]))


def _scores(context: method.Context, texts: continuations.Continuations, num_labels: int) -> np.ndarray:
    """log p [Q, labels] of the scored tokens together, queries in the order of their texts."""
    with progress.bar(texts.num_texts, f"seed {context.seed}, whole labels") as report:
        scores = context.model.score(texts, report).log_p
    return np.array([log_p.sum(dtype=np.float64) for log_p in scores]).reshape(-1, num_labels)


def cost(problem: method.Problem, reader: method.Reader, settings: options.Options) -> method.Cost:
    """All queries once more with each label of several tokens."""
    longer = sum(len(tokens) > 1 for tokens in label_tokens(problem))
    prefix = reader.demonstration_tokens(problem.task, problem.split.demonstrations) if longer else 0
    suffixes = reader.query_tokens(problem.task, problem.evaluation)
    return method.Cost(longer * len(problem.evaluation), prefix + longer * suffixes)


METHODS = (
    method.Method(
        "icl_multi_token",
        "In-context learning, whole labels",
        "Brown et al., NeurIPS 2020, Section 2.4",
        run,
        needs=(method.queries,),
        check=label_tokens,
        cost=cost,
        sees="demonstrations",
    ),
)
