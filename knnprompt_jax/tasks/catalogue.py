"""The tasks by name: the paper's ten and SST5 with the templates and label words of its released code, and the demo.

Adding a task is adding a declaration: below, or a YAML file anywhere.
"""

import importlib.resources
import pathlib
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.tasks import declarations
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import Task

DEMO = "demo"
PAPER_TASKS = ("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec")

_TASKS: dict[str, Task] = {}
_HUB: dict[str, HubSource] = {}


def names() -> list[str]:
    return [*_TASKS, DEMO]


def get(name: str) -> Task:
    """The task of that name, or the one that a file declares (see `declarations.read`).

    Raises:
      UserError: there is none of that name (with the choices), or the file declares none.
    """
    if name == DEMO:
        return declarations.read(demo_folder() / "task.json")
    if name.endswith(declarations.SUFFIXES):
        return declarations.read(pathlib.Path(name))
    if name not in _TASKS:
        raise errors.UserError(f"unknown task {name!r}; choose from {', '.join(names())}, or give a file: my_task.yaml")
    return _TASKS[name]


def hub_source(name: str) -> HubSource:
    """Where the Hugging Face Hub has the task; raises UserError with the choices where none is declared."""
    if name.endswith(declarations.SUFFIXES):
        return declarations.read_hub(pathlib.Path(name))
    if name not in _HUB:
        raise errors.UserError(f"no Hub dataset is declared for task {name!r}; choose from {', '.join(_HUB)}")
    return _HUB[name]


def dataset(name: str) -> str:
    """The Hub's name for the rows of a task, or an empty text."""
    return _HUB[name].dataset if name in _HUB else ""


def demo_folder() -> Traversable:
    """The rows and the declaration of the embedded demo task."""
    return importlib.resources.files("knnprompt_jax") / "demo" / "task"


_TRAIN_TEST = {"train": "train", "test": "test"}
_TRAIN_DEV_TEST = {"train": "train", "dev": "validation", "test": "test"}


def _add(
    name: str,
    template: str,
    words: Mapping[str, str],
    dataset: str,
    columns: Mapping[str, str] | None = None,
    splits: Mapping[str, str] = _TRAIN_TEST,
    labels: Mapping[Any, str] | None = None,
    retrieval_template: str = "{sentence}",
    **options: str,
) -> None:
    """Declares a task: the word of each label; and the Hub's dataset, whose texts are in the column `text` and whose labels are
    class numbers in the same order, unless `columns` and `labels` say more. `options` are those of `HubSource`."""
    columns = columns or {"sentence": "text"}
    label_words = tuple(words.values())
    _TASKS[name] = Task(name, tuple(columns), template, tuple(words), label_words, retrieval_template)
    _HUB[name] = HubSource(dataset, columns, labels or dict(enumerate(words)), splits, **options)


def _words(*words: str, first: int = 0) -> dict[str, str]:
    return {str(number): word for number, word in enumerate(words, first)}


_REVIEW = "Review: {sentence}\nSentiment:"
_TOPIC = "input: {sentence}\ntype:"
_POLARITY = _words("negative", "positive")
_SENTENCE = {"sentence": "sentence"}

_add("sst2", _REVIEW, _POLARITY, "stanfordnlp/sst2", _SENTENCE, _TRAIN_DEV_TEST)
_add(
    *("subj", "Input: {sentence}\nType:", _words("subjective", "objective"), "SetFit/subj"),
    labels={"subjective": "0", "objective": "1"},
    label_column="label_text",
)
_add("mpqa", _REVIEW, _POLARITY, "jxm/mpqa", _SENTENCE, {"train": "train", "dev": "dev", "test": "test"})
_add("agnews", _TOPIC, _words("world", "sports", "business", "technology", first=1), "fancyzhx/ag_news")
_add(
    *("cb", "premise: {premise}\nhypothesis: {hypothesis}\nprediction:"),
    {"contradiction": "false", "entailment": "true", "neutral": "neither"},
    "aps/super_glue",
    {"premise": "premise", "hypothesis": "hypothesis"},
    _TRAIN_DEV_TEST,
    labels={0: "entailment", 1: "contradiction", 2: "neutral"},
    retrieval_template="premise: {premise}. hypothesis: {hypothesis}",
    config="cb",
)
_add("cr", _REVIEW, _POLARITY, "SetFit/CR")
_add(
    *("dbpedia", _TOPIC),
    _words(
        *("company", "school", "artist", "athlete", "politics", "transportation", "building"),
        *("nature", "village", "animal", "plant", "album", "film", "book"),
        first=1,
    ),
    "fancyzhx/dbpedia_14",
    {"sentence": "content"},
)
_add("mr", _REVIEW, _POLARITY, "cornell-movie-review-data/rotten_tomatoes", splits=_TRAIN_DEV_TEST)
_add(
    *("rte", "premise: {sentence_1}\nhypothesis: {sentence_2}\nprediction:"),
    {"not_entailment": "false", "entailment": "true"},
    "nyu-mll/glue",
    {"sentence_1": "sentence1", "sentence_2": "sentence2"},
    _TRAIN_DEV_TEST,
    labels={0: "entailment", 1: "not_entailment"},
    retrieval_template="premise: {sentence_1}. hypothesis: {sentence_2}",
    config="rte",
)
_add(
    *("trec", "Question: {sentence}\nType:"),
    _words("description", "entity", "expression", "human", "location", "number"),
    "SetFit/TREC-QC",
    labels={"DESC": "0", "ENTY": "1", "ABBR": "2", "HUM": "3", "LOC": "4", "NUM": "5"},
    label_column="label_coarse_original",
)
_add("sst5", _REVIEW, _words("terrible", "bad", "okay", "good", "great"), "SetFit/sst5", splits=_TRAIN_DEV_TEST)
