"""The settings of each of the paper's tables and figures, by name: --config=configs/paper.py:few_shot.

They replace the defaults of the options of `experiments/paper.py`; a flag on the command line replaces both.
docs/paper.md lists the names, what each grid runs, and what it costs.
"""

from typing import Any

from knnprompt_jax.settings import grids


def get_config(name: str = "few_shot") -> dict[str, Any]:
    return grids.config(name)
