"""The tasks by name: the paper's ten and SST5 with the templates and label words of its released code, and the demo.

Adding a task is adding a declaration: `Task(...)` below or, for one's own, anywhere, a YAML file included.
"""

import importlib.resources
import pathlib
from importlib.resources.abc import Traversable

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


def demo_folder() -> Traversable:
    """The rows and the declaration of the embedded demo task."""
    return importlib.resources.files("knnprompt_jax") / "demo" / "task"


def _add(
    name: str, template: str, words: dict[str, str], hub: HubSource, retrieval_template: str = "{sentence}"
) -> None:
    _TASKS[name] = Task(
        name=name,
        fields=tuple(hub.columns),
        template=template,
        labels=tuple(words),
        label_words=tuple(words.values()),
        retrieval_template=retrieval_template,
    )
    _HUB[name] = hub


def _words(*words: str, first: int = 0) -> dict[str, str]:
    return {str(number): word for number, word in enumerate(words, first)}


def _numbers(count: int, first: int = 0) -> dict[int, str]:
    """Hub class numbers, from 0, to labels that are numbers from `first`."""
    return {number: str(number + first) for number in range(count)}


_REVIEW = "Review: {sentence}\nSentiment:"
_TOPIC = "input: {sentence}\ntype:"
_POLARITY = _words("negative", "positive")
_TRAIN_TEST = {"train": "train", "test": "test"}
_TRAIN_DEV_TEST = {"train": "train", "dev": "validation", "test": "test"}

_add(
    "sst2",
    _REVIEW,
    _POLARITY,
    HubSource("stanfordnlp/sst2", columns={"sentence": "sentence"}, labels=_numbers(2), splits=_TRAIN_DEV_TEST),
)
_add(
    "subj",
    "Input: {sentence}\nType:",
    _words("subjective", "objective"),
    HubSource(
        "SetFit/subj",
        columns={"sentence": "text"},
        label_column="label_text",
        labels={"subjective": "0", "objective": "1"},
        splits=_TRAIN_TEST,
    ),
)
_add(
    "mpqa",
    _REVIEW,
    _POLARITY,
    HubSource(
        "jxm/mpqa",
        columns={"sentence": "sentence"},
        labels=_numbers(2),
        splits={"train": "train", "dev": "dev", "test": "test"},
    ),
)
_add(
    "agnews",
    _TOPIC,
    _words("world", "sports", "business", "technology", first=1),
    HubSource("fancyzhx/ag_news", columns={"sentence": "text"}, labels=_numbers(4, first=1), splits=_TRAIN_TEST),
)
_add(
    "cb",
    "premise: {premise}\nhypothesis: {hypothesis}\nprediction:",
    {"contradiction": "false", "entailment": "true", "neutral": "neither"},
    HubSource(
        "aps/super_glue",
        config="cb",
        columns={"premise": "premise", "hypothesis": "hypothesis"},
        labels={0: "entailment", 1: "contradiction", 2: "neutral"},
        splits=_TRAIN_DEV_TEST,
    ),
    retrieval_template="premise: {premise}. hypothesis: {hypothesis}",
)
_add(
    "cr",
    _REVIEW,
    _POLARITY,
    HubSource("SetFit/CR", columns={"sentence": "text"}, labels=_numbers(2), splits=_TRAIN_TEST),
)
_add(
    "dbpedia",
    _TOPIC,
    _words(
        *("company", "school", "artist", "athlete", "politics", "transportation", "building"),
        *("nature", "village", "animal", "plant", "album", "film", "book"),
        first=1,
    ),
    HubSource(
        "fancyzhx/dbpedia_14",
        columns={"sentence": "content"},
        labels=_numbers(14, first=1),
        splits=_TRAIN_TEST,
    ),
)
_add(
    "mr",
    _REVIEW,
    _POLARITY,
    HubSource(
        "cornell-movie-review-data/rotten_tomatoes",
        columns={"sentence": "text"},
        labels=_numbers(2),
        splits=_TRAIN_DEV_TEST,
    ),
)
_add(
    "rte",
    "premise: {sentence_1}\nhypothesis: {sentence_2}\nprediction:",
    {"not_entailment": "false", "entailment": "true"},
    HubSource(
        "nyu-mll/glue",
        config="rte",
        columns={"sentence_1": "sentence1", "sentence_2": "sentence2"},
        labels={0: "entailment", 1: "not_entailment"},
        splits=_TRAIN_DEV_TEST,
    ),
    retrieval_template="premise: {sentence_1}. hypothesis: {sentence_2}",
)
_add(
    "trec",
    "Question: {sentence}\nType:",
    _words("description", "entity", "expression", "human", "location", "number"),
    HubSource(
        "SetFit/TREC-QC",
        columns={"sentence": "text"},
        label_column="label_coarse_original",
        labels={"DESC": "0", "ENTY": "1", "ABBR": "2", "HUM": "3", "LOC": "4", "NUM": "5"},
        splits=_TRAIN_TEST,
    ),
)
_add(
    "sst5",
    _REVIEW,
    _words("terrible", "bad", "okay", "good", "great"),
    HubSource("SetFit/sst5", columns={"sentence": "text"}, labels=_numbers(5), splits=_TRAIN_DEV_TEST),
)
