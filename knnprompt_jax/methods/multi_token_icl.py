"""In-context learning by whole label words: the label whose tokens together are most probable after the demonstrations.

log p(label) is the sum over its tokens, each after those before it (Brown et al., "Language Models are Few-Shot
Learners", NeurIPS 2020, Section 2.4). Where every label is one token this is in-context learning as the paper has it.
"""

import numpy as np
from scipy import special

from knnprompt_jax import errors, progress
from knnprompt_jax.methods import method
from knnprompt_jax.prompts import continuations as likelihood
from knnprompt_jax.prompts import layout
from knnprompt_jax.store import representations


def label_tokens(problem: method.Problem) -> list[np.ndarray]:
    """The tokens of a blank and each label word, without special ones.

    Raises:
      UserError: where two label words are the same tokens.
    """
    words = problem.task.label_words
    special_tokens = len(problem.tokenize([""])[0])
    labels = [
        np.array(tokens[special_tokens:], np.int32) for tokens in problem.tokenize([f" {word}" for word in words])
    ]
    first: dict[tuple[int, ...], str] = {}
    for word, tokens in zip(words, labels, strict=True):
        if (other := first.setdefault(tuple(tokens.tolist()), word)) != word:
            raise errors.UserError(
                f"task {problem.task.name!r}: the label words {other!r} and {word!r} are the same tokens, so their "
                "classes cannot be told apart: use other label words"
            )
    return labels


def log_probabilities(context: method.Context) -> np.ndarray:
    """log p [Q, C] of the labels, in nats, float64.

    First tokens are read off the states of the shared pass; only labels of several tokens cost a pass. There a prompt
    that fills the context loses tokens on the left to make place for its label.
    """
    labels = label_tokens(context.problem)
    first_ids = [int(tokens[0]) for tokens in labels]
    states = context.states[method.queries]
    log_p_QC = np.asarray(representations.label_log_probabilities(context.head, states, first_ids), np.float64)
    longer = [label for label, tokens in enumerate(labels) if len(tokens) > 1]
    if longer:
        log_p_QC[:, longer] += _continued(context, [labels[label] for label in longer])
    return log_p_QC


def _continued(context: method.Context, labels: list[np.ndarray]) -> np.ndarray:
    """log p [Q, labels] of the labels' tokens from the second on, after the first."""
    problem, model = context.problem, context.model
    prompts = layout.lay_out(
        problem.task,
        problem.split.demonstrations,
        problem.evaluation,
        problem.tokenize,
        model.context,
        problem.truncation,
    )
    families = [
        likelihood.Family(
            group.prefix_P,
            [np.append(suffix, tokens[:1]) for suffix in group.suffixes for tokens in labels],
            [tokens[1:] for _ in group.suffixes for tokens in labels],
        )
        for group in prompts.groups
    ]
    # The last token of a label is scored and not read.
    continuations = likelihood.lay_out(families, model.context + 1)
    with progress.bar(continuations.num_texts, f"seed {context.seed}, whole labels") as report:
        scores = model.log_likelihoods(continuations, report)
    log_p_QC = np.array([log_p.sum(dtype=np.float64) for log_p in scores]).reshape(-1, len(labels))
    return log_p_QC[np.argsort(np.concatenate([group.index for group in prompts.groups]))]


def run(context: method.Context) -> method.Prediction:
    """Predicts the most probable label; probabilities are normalised over the labels."""
    log_p_QC = log_probabilities(context)
    return method.Prediction(log_p_QC.argmax(-1), special.softmax(log_p_QC, axis=-1))


def check(problem: method.Problem) -> None:
    """Raises UserError where two label words are the same tokens."""
    label_tokens(problem)


METHODS = (
    method.Method(
        "icl_multi_token",
        "In-context learning, whole labels",
        run,
        needs=(method.queries,),
        check=check,
    ),
)
