"""How Min et al. (ACL 2022) put labels into words: four templates per task, words, and how many tokens a text may have.

Facts of their release, https://github.com/shmsw25/Channel-LM-Prompting. Where it has nothing (MPQA, CB, RTE, people's
tasks) the templates are ours, made of theirs; MPQA's are those of reviews.
"""

import dataclasses

from knnprompt_jax.tasks.task import Task

SHORT, LONG = 112, 240  # Tokens of a text to classify.
MARGIN = 16  # More tokens are kept of a demonstration, and make up the length of a context of a single demonstration.
CONTEXT = 1024  # Tokens of concatenated demonstrations and text.


@dataclasses.dataclass(frozen=True)
class Verbalization:
    """Four `templates` with "{}" for a label's word, and the `words` in class order. `is_published` if both are theirs."""

    templates: tuple[str, str, str, str]
    words: tuple[str, ...]
    text_tokens: int = SHORT
    is_published: bool = True

    def labels(self, template: int) -> list[str]:
        """The labels' texts by one template, in class order."""
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


def get(task: Task) -> Verbalization:
    """The task's verbalization; by default four general templates around its label words."""
    return _VERBALIZATIONS.get(task.name) or Verbalization(_GENERAL, task.label_words, is_published=False)
