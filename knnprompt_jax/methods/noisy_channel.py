"""Noisy channel: the class whose label explains the text best.

Min, Lewis, Hajishirzi, Zettlemoyer: "Noisy Channel Language Model Prompting for Few-Shot Text Classification", ACL
2022, https://github.com/shmsw25/Channel-LM-Prompting.

Templates, words and token limits are facts of its release. Tasks that it lacks (MPQA, CB, RTE, users' tasks) have
templates of ours, made from theirs; MPQA's are those of reviews. The tokens of a text are those of the released code,
with one exception: a space precedes the query's label after a single demonstration as well.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from knnprompt_jax.common import errors
from knnprompt_jax.common.options import Options, option
from knnprompt_jax.inference import lm
from knnprompt_jax.inference.prompts import continuations, layout
from knnprompt_jax.methods import method
from knnprompt_jax.tasks.task import Task

SHORT = 112  # Maximum tokens of a text to classify.
LONG = 240  # The same, for tasks of long texts.
MARGIN = 16  # Additional tokens of a demonstration.
CONTEXT = 1024  # Maximum tokens of concatenated demonstrations and text.


class NoisyChannelOptions(Options):
    """Options of the scores. Texts that exceed the context lose tokens on the left."""

    template: int = option(0, "1 to 4; 0 scores all four and keeps the best on the evaluation rows.", least=0, most=4)


@dataclasses.dataclass(frozen=True)
class Verbalization:
    """The templates and words of a task's labels.

    Attributes:
        templates: four templates with "{}" for a label's word.
        words: one word per class.
        text_tokens: the maximum tokens of a text to classify.
        is_published: whether templates and words are Min et al.'s.
    """

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


def scores(inputs: method.Inputs, options: NoisyChannelOptions) -> tuple[np.ndarray, continuations.Continuations]:
    """Return scores [U, Q, C] by U templates, and the texts that were read.

    A score is the mean log-probability of the scored tokens, including an end-of-text token.
    """
    problem = inputs.problem
    verbalization = verbalization_of(problem.task)
    boundaries = boundary_tokens(inputs.model)
    demonstrations = [
        (problem.task.retrieval_text(row), problem.task.class_index(row.label)) for row in problem.split.demonstrations
    ]
    queries = [problem.task.retrieval_text(row) for row in problem.evaluation]
    templates = [options.template - 1] if options.template else [0, 1, 2, 3]
    all_labels = [verbalization.labels(template) for template in templates]
    families = [
        channel(problem.tokenize, boundaries, verbalization.text_tokens, labels, demonstrations, queries)
        for labels in all_labels
    ]
    texts = continuations.build(families, min(inputs.model.context, CONTEXT))
    log_p = inputs.score(texts, "noisy channel")
    means = np.array([tokens.mean(dtype=np.float64) for tokens in log_p])
    return means.reshape(len(templates), len(queries), inputs.num_classes), texts


def channel(
    tokenize: layout.Tokenize,
    boundaries: tuple[int, int],
    text_tokens: int,
    labels: Sequence[str],
    demonstrations: Sequence[tuple[str, int]],
    queries: Sequence[str],
) -> continuations.Family:
    """Write "label text label text … label" before "text end", which is scored: each query after each label.

    Labels and texts are tokenized separately. A query keeps `text_tokens` tokens, and a demonstration `MARGIN` more.

    Args:
        boundaries: the tokens that begin and end a text.
        demonstrations: their texts and class indices.
    """
    start, end = boundaries
    num_special = len(tokenize([""])[0])
    first_labels = [tokens[num_special:] for tokens in tokenize(list(labels))]  # They follow no text.
    later_labels = layout.tokenize_continuations(tokenize, [f" {label}" for label in labels])
    texts = layout.tokenize_continuations(tokenize, [f" {text}" for text, _ in demonstrations])
    prefix = [start]
    for index, (_, label) in enumerate(demonstrations):
        prefix += (later_labels if index else first_labels)[label]
        prefix += texts[index][: text_tokens + MARGIN]
    contexts = [np.array(tokens, np.int32) for tokens in (later_labels if demonstrations else first_labels)]
    endings = [
        np.array([*tokens[:text_tokens], end], np.int32)
        for tokens in layout.tokenize_continuations(tokenize, [f" {query}" for query in queries])
    ]
    targets = [ending for ending in endings for _ in labels]
    return continuations.Family(np.array(prefix, np.int32), contexts * len(queries), targets)


def boundary_tokens(model: lm.LanguageModel) -> tuple[int, int]:
    """Return the tokens that begin and end a text; a tokenizer that has only one of them uses it for both."""
    start = model.tokenizer.bos_token_id
    end = model.tokenizer.eos_token_id
    if start is None and end is None:
        message = f"{model.name}: the tokenizer has no token that begins or ends a text, which is required"
        raise errors.UserError(message)
    return (end if start is None else start), (start if end is None else end)


def predict(inputs: method.Inputs, options: NoisyChannelOptions) -> method.Prediction:
    """Predict with one template, or with the best of four; probabilities are the softmax of its scores."""
    scores_UQC, texts = scores(inputs, options)
    accuracy_U = (scores_UQC.argmax(-1) == inputs.classes(inputs.problem.evaluation)).mean(-1)
    best_QC = scores_UQC[accuracy_U.argmax()]
    notes = []
    if len(accuracy_U) > 1:
        notes.append(f"best of {len(accuracy_U)} templates, CHOSEN ON THE EVALUATION ROWS for each seed")
    if not verbalization_of(inputs.problem.task).is_published:
        notes.append("templates are ours: Min et al. have none for this task")
    candidates = tuple(accuracy_U.tolist()) if len(accuracy_U) > 1 else ()
    return method.Prediction.from_scores(best_QC, texts, note="; ".join(notes), candidates=candidates)


METHODS = (
    method.Method(
        "noisy_channel",
        "Noisy channel",
        predict,
        NoisyChannelOptions,
        rows_used="demonstrations",
        printed_as=("Noisy Channel", "NoisyChannel"),
    ),
)
