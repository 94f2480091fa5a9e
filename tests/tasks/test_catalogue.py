"""The declared tasks, to the character."""

import pytest

from knnprompt_jax import errors
from knnprompt_jax.tasks import catalogue
from knnprompt_jax.tasks.task import Example

POLARITY = {"0": "negative", "1": "positive"}
TOPICS = (
    *("company", "school", "artist", "athlete", "politics", "transportation", "building"),
    *("nature", "village", "animal", "plant", "album", "film", "book"),
)

# name: the labelled text of a row whose fields hold the letters A, B and whose label is the first, and the words.
PUBLISHED = {
    "sst2": ("Review: A\nSentiment: negative\n", POLARITY),
    "subj": ("Input: A\nType: subjective\n", {"0": "subjective", "1": "objective"}),
    "mpqa": ("Review: A\nSentiment: negative\n", POLARITY),
    "agnews": ("input: A\ntype: world\n", {"1": "world", "2": "sports", "3": "business", "4": "technology"}),
    "cb": (
        "premise: A\nhypothesis: B\nprediction: false\n",
        {"contradiction": "false", "entailment": "true", "neutral": "neither"},
    ),
    "cr": ("Review: A\nSentiment: negative\n", POLARITY),
    "dbpedia": ("input: A\ntype: company\n", {str(i): topic for i, topic in enumerate(TOPICS, 1)}),
    "mr": ("Review: A\nSentiment: negative\n", POLARITY),
    "rte": (
        "premise: A\nhypothesis: B\nprediction: false\n",
        {"not_entailment": "false", "entailment": "true"},
    ),
    "trec": (
        "Question: A\nType: description\n",
        {"0": "description", "1": "entity", "2": "expression", "3": "human", "4": "location", "5": "number"},
    ),
    "sst5": (
        "Review: A\nSentiment: terrible\n",
        {"0": "terrible", "1": "bad", "2": "okay", "3": "good", "4": "great"},
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_declarations_are_the_published_ones(name):
    """Templates, label words, retrieval texts; the Hub declaration fills the fields and reaches every label."""
    task, source = catalogue.get(name), catalogue.hub_source(name)
    labelled, words = PUBLISHED[name]
    example = Example(fields=dict(zip(task.fields, "AB", strict=False)), label=task.labels[0])
    assert task.render(example, task.labels[0]) == labelled
    assert task.render(example) == labelled[: labelled.rindex(" ")]
    assert list(zip(task.labels, task.label_words, strict=True)) == list(words.items())
    assert task.retrieval_text(example) == ("premise: A. hypothesis: B" if name in ("cb", "rte") else "A")
    assert tuple(source.columns) == task.fields
    assert set(source.labels.values()) == set(task.labels)
    assert {"train", "test"} <= set(source.splits)


def test_unknown_names_list_the_choices():
    with pytest.raises(errors.UserError, match="unknown task 'sst'; choose from sst2, .*trec, sst5, demo"):
        catalogue.get("sst")
    with pytest.raises(errors.UserError, match="no Hub dataset is declared for task 'demo'; choose from sst2"):
        catalogue.hub_source("demo")
