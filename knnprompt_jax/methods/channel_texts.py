"""The texts of the noisy channel: templates for labels, and labels, demonstrations and queries as token families.

Templates, words and token limits are facts of Min et al.'s release, https://github.com/shmsw25/Channel-LM-Prompting. Tasks that it lacks
(MPQA, CB, RTE, users' tasks) have templates of ours, made from theirs; MPQA's are those of reviews.

The layout is that of the released code, to the token, with two exceptions. A space stands before the query's label after a single
demonstration as well, and labels may share any beginning.
"""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from knnprompt_jax.prompts import continuations, layout
from knnprompt_jax.tasks.task import Task

SHORT, LONG = 112, 240  # Tokens of a text to classify.
MARGIN = 16  # A demonstration keeps so many more tokens, and so does a context of a single demonstration.
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


def verbalization(task: Task) -> Verbalization:
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
        prefix = [self._start]
        for place, (text, label) in enumerate(demonstrations):
            prefix += [*self._pieces([_after(place, labels[label])]), self._demonstration(f" {text}")]
        contexts = self._pieces([_after(len(demonstrations), label) for label in labels])
        texts = self._pieces([f" {query}" for query in queries], self._text_tokens)
        targets = [np.append(text, self._end) for text in texts for _ in labels]
        return continuations.Family(np.concatenate(prefix), contexts * len(texts), targets)

    def direct(
        self, labels: Sequence[str], demonstrations: Sequence[Demonstration], queries: Sequence[str]
    ) -> continuations.Family:
        """Write "text label text label … text" and the common beginning of all labels before "rest of label, end", which is scored."""
        words, prefix = self._pieces([f" {label}" for label in labels]), [self._start]
        for place, (text, label) in enumerate(demonstrations):
            prefix += [self._demonstration(_after(place, text)), words[label]]
        texts = self._pieces([_after(len(demonstrations), query) for query in queries], self._text_tokens)
        common = len(os.path.commonprefix([word.tolist() for word in words]))
        return continuations.Family(
            np.concatenate(prefix),
            [np.append(text, words[0][:common]) for text in texts for _ in words],
            [np.append(word[common:], self._end) for word in words] * len(texts),
        )

    def _demonstration(self, text: str) -> np.ndarray:
        return self._pieces([text], self._text_tokens + MARGIN)[0]

    def _pieces(self, texts: Sequence[str], limit: int | None = None) -> list[np.ndarray]:
        """Return the first `limit` tokens of each text, tokenized separately and without special tokens."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        for text, tokens in zip(new, self._tokenize(new), strict=True):
            self._known[text] = np.array(tokens[self._special :], np.int32)
        return [self._known[text][:limit] for text in texts]


def _after(number: int, text: str) -> str:
    """Return the text with a space before it if it follows `number` > 0 demonstrations."""
    return f" {text}" if number else text
