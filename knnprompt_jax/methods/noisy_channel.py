"""Noisy channel: the class whose label explains the text best.

Min, Lewis, Hajishirzi, Zettlemoyer: "Noisy Channel Language Model Prompting for Few-Shot Text Classification", ACL 2022,
https://github.com/shmsw25/Channel-LM-Prompting.

Templates, words and token limits are facts of its release. Tasks that it lacks (MPQA, CB, RTE, users' tasks) have templates of ours,
made from theirs; MPQA's are those of reviews. The layout is that of the released code, to the token, with one exception: a space
stands before the query's label after a single demonstration as well.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy import special

from knnprompt_jax import errors, lm
from knnprompt_jax.methods import method
from knnprompt_jax.prompts import continuations, layout
from knnprompt_jax.settings import methods
from knnprompt_jax.tasks.task import Example, Task

SHORT, LONG = 112, 240  # Tokens of a text to classify.
MARGIN = 16  # Additional tokens of a demonstration.
CONTEXT = 1024  # Tokens of concatenated demonstrations and text.

Demonstration = tuple[str, int]
"""The text of a demonstration and its class index."""


@dataclasses.dataclass(frozen=True)
class Verbalization:
    """Four `templates` with "{}" for a label's word, and the `words` in class order; `is_published` if both are Min et al.'s."""

    templates: tuple[str, str, str, str]
    words: tuple[str, ...]
    text_tokens: int = SHORT
    is_published: bool = True

    def labels(self, template: int) -> list[str]:
        """Return the labels' texts by one template, in class order."""
        return [self.templates[template].format(word) for word in self.words]


_REVIEW = ("A {} one .", "It was {} .", "All in all {} .", "A {} piece .")
_TOPIC = ("Topic: {}.", "Subject: {}.", "This is about {}.", "It is about {}.")
_GENERAL = ("This is {} .", "It is {} .", "It's {} .", "Answer: {} .")
_POLARITY = ("terrible", "great")

_VERBALIZATIONS = {
    "sst2": Verbalization(_REVIEW, _POLARITY),
    "mr": Verbalization(_REVIEW, _POLARITY),
    "cr": Verbalization(_REVIEW, _POLARITY, LONG),
    "mpqa": Verbalization(_REVIEW, _POLARITY, is_published=False),
    "sst5": Verbalization(_REVIEW, ("terrible", "bad", "okay", "good", "great")),
    "subj": Verbalization(
        ("This is {} .", "It's all {} .", "It's {} .", "Is it {} ?"), ("subjective", "objective"), LONG
    ),
    "trec": Verbalization(
        ("{} :", "Q: {} :", "Why {} ?", "Answer: {} ."),
        ("Description", "Entity", "Expression", "Human", "Location", "Number"),
    ),
    "agnews": Verbalization(_TOPIC, ("World", "Sports", "Business", "Technology"), LONG),
    "dbpedia": Verbalization(
        _TOPIC,
        (
            *("Company", "Educational Institution", "Artist", "Athlete", "Office Holder", "Mean of Transportation"),
            *("Building", "Natural Place", "Village", "Animal", "Plant", "Album", "Film", "Written Work"),
        ),
        LONG,
    ),
}


def verbalization_of(task: Task) -> Verbalization:
    """Return the task's verbalization; by default four general templates around its label words."""
    return _VERBALIZATIONS.get(task.name) or Verbalization(_GENERAL, task.label_words, is_published=False)


class Writer:
    """Converts rows and labels to tokens. A family contains, for each query, the texts of all classes."""

    def __init__(self, tokenize: layout.Tokenize, start: int, end: int, text_tokens: int):
        """Start texts with the token `start`, end them with `end`, and keep the first `text_tokens` tokens of a query."""
        self._tokenize, self._text_tokens = tokenize, text_tokens
        self._start, self._end = np.array([start], np.int32), np.array([end], np.int32)
        self._special = len(tokenize([""])[0])
        self._known: dict[str, np.ndarray] = {}

    def channel(
        self, labels: Sequence[str], demonstrations: Sequence[Demonstration], queries: Sequence[str]
    ) -> continuations.Family:
        """Write "label text label text … label" before "text end", which is scored."""
        prefix, longest = [self._start], self._text_tokens + MARGIN
        for place, (text, label) in enumerate(demonstrations):
            prefix += [*self._pieces([_after(place, labels[label])]), *self._pieces([f" {text}"], longest)]
        contexts = self._pieces([_after(len(demonstrations), label) for label in labels])
        texts = self._pieces([f" {query}" for query in queries], self._text_tokens)
        targets = [np.append(text, self._end) for text in texts for _ in labels]
        return continuations.Family(np.concatenate(prefix), contexts * len(texts), targets)

    def _pieces(self, texts: Sequence[str], limit: int | None = None) -> list[np.ndarray]:
        """Return the first `limit` tokens of each text, tokenized separately and without special tokens.

        Texts that begin with a blank follow another text.
        """
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        first = [text for text in new if not text.startswith(" ")]
        later = [text for text in new if text.startswith(" ")]
        pieces = [tokens[self._special :] for tokens in self._tokenize(first)]
        pieces += layout.continued(self._tokenize, later)
        self._known |= {text: np.array(tokens, np.int32) for text, tokens in zip([*first, *later], pieces, strict=True)}
        return [self._known[text][:limit] for text in texts]


def _after(number: int, text: str) -> str:
    """Return the text with a space before it if it follows `number` > 0 demonstrations."""
    return f" {text}" if number else text


def scores(
    context: method.Context, settings: methods.NoisyChannelOptions
) -> tuple[np.ndarray, continuations.Continuations]:
    """Return scores [U, Q, C] by U templates, and the texts that were read.

    A score is the mean log-probability of the scored tokens, including an end-of-text token.
    """
    problem = context.problem
    verbalization = verbalization_of(problem.task)
    text_tokens, limit = limits(settings, verbalization, context.model.context)
    writer = Writer(problem.tokenize, *boundary_tokens(context.model), text_tokens)
    demonstrations = [
        (problem.task.retrieval_text(row), problem.task.class_index(row.label)) for row in _shown(settings, problem)
    ]
    queries = [problem.task.retrieval_text(row) for row in problem.evaluation]
    texts = continuations.build(
        (writer.channel(verbalization.labels(template), demonstrations, queries) for template in _templates(settings)),
        limit,
    )
    log_p = context.score(texts, "noisy channel")
    means = np.array([tokens.mean(dtype=np.float64) for tokens in log_p])
    return means.reshape(len(_templates(settings)), len(queries), context.num_classes), texts


def boundary_tokens(model: lm.LanguageModel) -> tuple[int, int]:
    """Return the tokens that begin and end a text; a tokenizer that has only one of them uses it for both."""
    start, end = model.tokenizer.bos_token_id, model.tokenizer.eos_token_id
    if start is None and end is None:
        raise errors.UserError(
            f"{model.name}: the tokenizer has no token that begins or ends a text; the noisy channel needs one"
        )
    return (end if start is None else start), (start if end is None else end)


def run(context: method.Context, settings: methods.NoisyChannelOptions) -> method.Prediction:
    """Predict with one template, or with the best of four; probabilities are the softmax of its scores."""
    scores_UQC, texts = scores(context, settings)
    accuracy_U = (scores_UQC.argmax(-1) == context.classes(context.problem.evaluation)).mean(-1)
    best_QC = scores_UQC[accuracy_U.argmax()]
    notes = []
    if len(accuracy_U) > 1:
        notes.append(f"best of {len(accuracy_U)} templates, CHOSEN ON THE EVALUATION ROWS for each seed")
    if not verbalization_of(context.problem.task).is_published:
        notes.append("templates are ours: Min et al. have none for this task")
    if texts.num_truncated:
        notes.append(f"{texts.num_truncated} of {texts.num_texts} texts truncated")
    return method.Prediction(
        best_QC.argmax(-1),
        special.softmax(best_QC, axis=-1),
        note="; ".join(notes),
        candidates=tuple(accuracy_U.tolist()) if len(accuracy_U) > 1 else (),
        prompts=texts.num_texts,
        tokens=texts.num_tokens,
        truncated=texts.num_truncated,
    )


def best_template(accuracy_SU: Sequence[Sequence[float]]) -> int:
    """Return the template, from 0, with the best mean accuracy over S seeds: the paper's "best of four".

    Choosing a template for each seed would give a mean of maxima, which is higher.
    """
    return int(np.mean(accuracy_SU, axis=0).argmax())


def cost(problem: method.Problem, counter: method.TokenCounter, settings: methods.NoisyChannelOptions) -> method.Cost:
    """Estimate the cost of each query with each label by each template."""
    times = len(_templates(settings)) * problem.task.num_classes
    prefix = min(counter.context, counter.demonstration_tokens(problem.task, _shown(settings, problem)))
    suffixes = counter.query_tokens(problem.task, problem.evaluation)
    return method.Cost(times * len(problem.evaluation), times * (prefix + suffixes))


def _templates(settings: methods.NoisyChannelOptions) -> list[int]:
    return [settings.template - 1] if settings.template else [0, 1, 2, 3]


def limits(settings: methods.NoisyChannelOptions, verbalization: Verbalization, context: int) -> tuple[int, int]:
    """Return the maximum tokens of a query and of a whole context, for a model that reads `context` tokens."""
    text = settings.text_tokens or verbalization.text_tokens
    return text, min(context, settings.context_tokens or CONTEXT)


def _shown(settings: methods.NoisyChannelOptions, problem: method.Problem) -> Sequence[Example]:
    """Return the rows that stand before each query."""
    return problem.train_rows if settings.shown == "all" else problem.split.demonstrations


METHODS = method.declare("noisy_channel", run, cost=cost, rows_used="demonstrations")
