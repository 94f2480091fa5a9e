"""Tasks by name: the paper's ten and SST5, with the templates and label words of its released code, and the demo.

To add a task, write a YAML file like those in `published/`, there or anywhere.
"""

import functools
import importlib.resources
import pathlib
from importlib.resources.abc import Traversable

from knnprompt_jax import errors
from knnprompt_jax.tasks import declarations
from knnprompt_jax.tasks.hub import HubSource
from knnprompt_jax.tasks.task import Task

DEMO = "demo"
PAPER_TASKS = ("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec")
_PUBLISHED = (*PAPER_TASKS, "sst5")


def names() -> list[str]:
    """Return the names of all tasks that come with the package."""
    return [*_PUBLISHED, DEMO]


def get(name: str) -> Task:
    """Return the task of that name, or the one that a file declares (see `declarations.read`).

    Raises:
      UserError: the name is unknown, or the file declares no task.
    """
    if name.endswith(declarations.SUFFIXES):
        return declarations.read(pathlib.Path(name))
    if name not in names():
        raise errors.UserError(f"unknown task {name!r}; choose from {', '.join(names())}, or give a file: my_task.yaml")
    return _read(name)


@functools.cache
def _read(name: str) -> Task:
    return declarations.read(demo_folder() / "task.json" if name == DEMO else _published(name))


def _published(name: str) -> Traversable:
    return importlib.resources.files("knnprompt_jax") / "tasks" / "published" / f"{name}.yaml"


def hub_source(name: str) -> HubSource:
    """Return the task's dataset on the Hugging Face Hub; raise UserError with the choices if none is declared."""
    if name.endswith(declarations.SUFFIXES):
        return declarations.read_hub(pathlib.Path(name))
    if name not in _PUBLISHED:
        raise errors.UserError(f"no Hub dataset is declared for task {name!r}; choose from {', '.join(_PUBLISHED)}")
    return declarations.read_hub(_published(name))


def demo_folder() -> Traversable:
    """Return the folder with the rows and the declaration of the demo task."""
    return importlib.resources.files("knnprompt_jax") / "demo" / "task"
