"""The appendix's table of task statistics: how many shots a context holds. No language model is read."""

import json
import pathlib
from typing import Any

from knnprompt_jax import errors, files, tables
from knnprompt_jax.models import registry as models
from knnprompt_jax.models import tokenizers
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.paper import subjects
from knnprompt_jax.prompts import layout, statistics

FILE = "max_shots.json"


def run(settings: settings_lib.GridSettings) -> list[dict[str, Any]]:
    """Counts and writes <output>/max_shots/max_shots.json: {"rows": [a row for each task and context]}.

    Raises:
        UserError: on tasks or a tokenizer that cannot be read, or where nothing is asked for.
    """
    if not settings.task_names or not settings.contexts:
        raise errors.UserError(
            f"max_shots: nothing to count with tasks={settings.tasks!r}, contexts={settings.contexts}"
        )
    folder = pathlib.Path(settings.tokenizer) if settings.tokenizer else models.describe(settings.model_names[0])[1]
    tokenize = layout.tokenize_with(tokenizers.load(folder))
    rows = [row for name in settings.task_names for row in _rows(settings, name, tokenize)]
    path = pathlib.Path(settings.output) / settings.experiment / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.new_file(path) as unfinished:
        unfinished.write_text(json.dumps({"rows": rows}, indent=1), encoding="utf-8")
    return rows


def _rows(settings: settings_lib.GridSettings, name: str, tokenize: layout.Tokenize) -> list[dict[str, Any]]:
    rows = subjects.load_rows(settings, name)
    described = statistics.describe(rows.task, rows.train, rows.evaluation, tokenize, settings.contexts)
    return [
        {
            "task": name,
            "num_classes": described.num_classes,
            "average_template_tokens": described.average_template_tokens,
            "context": context,
            "max_shots": limit.max_shots,
            "truncated": limit.truncated,
            "m_t": limit.m_t,
        }
        for context, limit in described.limits.items()
    ]


def summarize(rows: list[dict[str, Any]]) -> str:
    """The table that the binary prints."""
    cells = [
        [
            str(row["task"]),
            str(row["num_classes"]),
            f"{row['average_template_tokens']:.1f}",
            str(row["context"]),
            f"{row['max_shots']} ({100 * row['truncated']:.0f} %)",
            str(row["m_t"]),
        ]
        for row in rows
    ]
    return tables.render(["task", "classes", "tokens", "context", "max shots", "M_T"], cells)
