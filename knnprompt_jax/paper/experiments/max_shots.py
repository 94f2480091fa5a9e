"""Dataset statistics (two tables): classes, template tokens, and the shots that 1,024 and 2,048 tokens hold.

The paper counted them with GPT-2's tokenizer: pass a folder with that tokenizer as `tokenizer`.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from knnprompt_jax import errors, files
from knnprompt_jax.models import registry as models
from knnprompt_jax.models import tokenizers
from knnprompt_jax.paper import experiment
from knnprompt_jax.prompts import layout, statistics
from knnprompt_jax.report import names, page, published, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.report.tables import Cell, Table
from knnprompt_jax.runs import inputs
from knnprompt_jax.settings import grids

_NAME = "max_shots"
_FIELDS = {"task", "num_classes", "average_template_tokens", "context", "max_shots", "truncated", "m_t"}
_OF_TASK = {"num_classes": "classes", "average_template_tokens": "tokens of a template, mean"}
_OF_CONTEXT = {
    "max_shots": "shots that {:,} tokens hold",
    "truncation_percent": "TP for {:,} tokens: truncated prompts, %",
    "M_T": "M_T for {:,} tokens",
}


@dataclasses.dataclass(frozen=True)
class _MaxShots(experiment.Experiment):
    def read(self, folder: pathlib.Path) -> Sequence[Mapping[str, Any]]:
        """Return the rows that `count` wrote; raise UserError if they are incomplete."""
        path = folder / f"{_NAME}.json"
        if not path.exists():
            return []
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
            if rows and all(set(row) >= _FIELDS for row in rows):
                return rows
        except (OSError, ValueError, TypeError, KeyError):
            pass
        raise errors.UserError(f"{path}: no task statistics: rows with {', '.join(sorted(_FIELDS))} are expected")

    def section(self, records: Sequence[Mapping[str, Any]], folder: pathlib.Path) -> page.Section:
        """Return the table of the rows; texts and a tokenizer determine them, without a model."""
        del folder
        return page.Section(self.name, self.title, self.text, tables=(_table(records),))


def _count(settings: grids.CountSettings) -> str:
    """Count, write <output>/max_shots/max_shots.json, {"rows": [a row per task and context]}, and return the table.

    Raises:
      UserError: a task or tokenizer is unreadable, or no tokenizer is given.
    """
    if not (settings.tokenizer or settings.models):
        raise errors.UserError("--tokenizer, --models: name a tokenizer's folder or a model")
    folder = pathlib.Path(settings.tokenizer) if settings.tokenizer else models.describe(settings.models[0])[1]
    tokenize, rows = layout.tokenize_with(tokenizers.load(folder)), []
    for name in settings.tasks:
        task_rows = inputs.load_rows(settings, name)
        parts = task_rows.task, task_rows.train, task_rows.evaluation
        rows += [{**row, "task": name} for row in statistics.describe(*parts, tokenize, settings.contexts)]
    path = pathlib.Path(settings.output) / _NAME / f"{_NAME}.json"
    files.write(path, json.dumps({"rows": rows}, indent=1))
    return tables.to_text(_table(rows))


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a row per quantity and a column per task."""
    paper = published.tables()[_NAME]
    order = [name.lower() for name in paper["tasks"]]
    columns = {task: names.task(task) for task in names.ordered("task", [*(row["task"] for row in rows), *order])}
    contexts = sorted({*(row["context"] for row in rows), *map(int, paper["context"])})
    quantities: list[tuple[str, str, int | None]] = [(name, title, None) for name, title in _OF_TASK.items()]
    quantities += [(name, title, context) for context in contexts for name, title in _OF_CONTEXT.items()]
    counted = [{**row, "truncation_percent": 100 * row["truncated"], "M_T": row["m_t"]} for row in reversed(rows)]
    cells = {}
    for name, title, context in quantities:
        numbers = paper[name] if context is None else paper["context"].get(str(context), {}).get(name, [])
        theirs = dict(zip(order, numbers, strict=False))
        ours = {row["task"]: row[name] for row in counted if context in (None, row["context"])}
        for task in columns:
            first, second = (
                None if value is None else Score(float(value)) for value in (ours.get(task), theirs.get(task))
            )
            digits = int(name == "average_template_tokens")
            cells[title.format(context), task] = Cell(first, second, True, digits=digits)
    caption = "Task statistics, and the most shots per class for which at most 5 % of the prompts are truncated."
    return tables.build(
        _NAME, caption, ("",), columns, cells, [(title.format(context),) for _, title, context in quantities]
    )


EXPERIMENTS = (
    _MaxShots(
        _NAME,
        "Task statistics: how many shots a context holds",
        "Counted with the model's tokenizer; no model runs.",
        lambda data: ([], []),
        count=_count,
    ),
)
