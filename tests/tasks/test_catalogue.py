"""The declared tasks, to the character."""

import pytest

from knnprompt_jax import errors
from knnprompt_jax.tasks import catalogue
from knnprompt_jax.tasks.task import Example

REVIEW = "Review: A\nSentiment:", "0 1", "negative positive"
TOPICS = "company school artist athlete politics transportation building nature village animal plant album film book"
# The query of a row whose fields hold the letters A and B, the labels and their words.
PUBLISHED = {
    **dict.fromkeys(("sst2", "mpqa", "cr", "mr"), REVIEW),
    "sst5": (REVIEW[0], "0 1 2 3 4", "terrible bad okay good great"),
    "subj": ("Input: A\nType:", "0 1", "subjective objective"),
    "agnews": ("input: A\ntype:", "1 2 3 4", "world sports business technology"),
    "dbpedia": ("input: A\ntype:", " ".join(map(str, range(1, 15))), TOPICS),
    "trec": ("Question: A\nType:", "0 1 2 3 4 5", "description entity expression human location number"),
    "cb": ("premise: A\nhypothesis: B\nprediction:", "contradiction entailment neutral", "false true neither"),
    "rte": ("premise: A\nhypothesis: B\nprediction:", "not_entailment entailment", "false true"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_declarations_are_the_published_ones(name):
    """Templates, label words, retrieval texts; the Hub declaration fills the fields and reaches every label."""
    task, source = catalogue.get(name), catalogue.hub_source(name)
    example = Example(fields=dict(zip(task.fields, "AB", strict=False)), label=task.labels[0])
    assert (task.render(example), " ".join(task.labels), " ".join(task.label_words)) == PUBLISHED[name]
    assert task.retrieval_text(example) == ("premise: A. hypothesis: B" if name in ("cb", "rte") else "A")
    assert tuple(source.columns) == task.fields
    assert set(source.labels.values()) == set(task.labels)
    assert {"train", "test"} <= set(source.splits)


def test_unknown_names_list_the_choices():
    with pytest.raises(errors.UserError, match="unknown task 'sst'; choose from sst2, .*trec, sst5, demo"):
        catalogue.get("sst")
    with pytest.raises(errors.UserError, match="task.json: 'hub' should have the key dataset"):
        catalogue.hub_source("demo")
