"""Tasks as declarations, rows from files and the Hub, seeded few-shot splits. Nothing here imports JAX."""

from knnprompt_jax.tasks.catalogue import get, load_rows, names
from knnprompt_jax.tasks.splits import FewShotSplit, draw
from knnprompt_jax.tasks.task import Example, Task

__all__ = ["Example", "FewShotSplit", "Task", "draw", "get", "load_rows", "names"]
