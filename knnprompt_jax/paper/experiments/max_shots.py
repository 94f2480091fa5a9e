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
from knnprompt_jax.settings import grids
from knnprompt_jax.study import job_inputs as inputs

_NAME = "max_shots"
_FIELDS = {"task", "num_classes", "average_template_tokens", "context", "max_shots", "truncated", "m_t"}
_TASK_ROWS = {"num_classes": "classes", "average_template_tokens": "tokens of a template, mean"}
_CONTEXT_ROWS = {
    "max_shots": "shots that {:,} tokens hold",
    "truncation_percent": "TP for {:,} tokens: truncated prompts, %",
    "M_T": "M_T for {:,} tokens",
}


@dataclasses.dataclass(frozen=True)
class _MaxShots(experiment.Experiment):
    """An experiment that counts tokens and runs no model."""

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

    def section(
        self, records: Sequence[Mapping[str, Any]], folder: pathlib.Path, with_figures: bool = True
    ) -> page.Section:
        """Return the table of the rows; texts and a tokenizer determine them, without a model."""
        del folder, with_figures
        return page.Section(self.name, self.title, self.text, tables=(_table(records),))


def _count(settings: grids.CountSettings) -> str:
    """Count, write <output>/max_shots/max_shots.json, {"rows": [a row per task and context]}, and return the table.

    Raises:
        UserError: a task or tokenizer is unreadable, or no tokenizer is given.
    """
    if not (settings.tokenizer or settings.models):
        raise errors.UserError("--tokenizer, --models: name a tokenizer's folder or a model")
    folder = pathlib.Path(settings.tokenizer) if settings.tokenizer else models.describe(settings.models[0])[1]
    tokenize = layout.tokenize_with(tokenizers.load(folder))
    rows = []
    for name in settings.tasks:
        task_rows = inputs.load_rows(settings, name)
        described = statistics.describe(
            task_rows.task, task_rows.train, task_rows.evaluation, tokenize, settings.contexts
        )
        rows += [{**row, "task": name} for row in described]
    path = pathlib.Path(settings.output) / _NAME / f"{_NAME}.json"
    files.write(path, json.dumps({"rows": rows}, indent=1))
    return tables.to_text(_table(rows))


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a row per quantity and a column per task."""
    contexts = sorted({*(row["context"] for row in rows), *map(int, published.tables()[_NAME]["context"])})
    headers = list(_TASK_ROWS.values())
    for context in contexts:
        headers += [title.format(context) for title in _CONTEXT_ROWS.values()]
    ours = _ours(rows)
    theirs = _papers()
    cells = {}
    for header, task in {**ours, **theirs}:
        digits = int(header == _TASK_ROWS["average_template_tokens"])
        cells[header, task] = Cell(ours.get((header, task)), theirs.get((header, task)), True, digits=digits)
    caption = "Task statistics, and the most shots per class for which at most 5 % of the prompts are truncated."
    columns = {task: names.task(task) for task in names.ordered("task", {task for _, task in cells})}
    return tables.build(_NAME, caption, ("",), columns, cells, [(header,) for header in headers])


def _ours(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Score]:
    """Return our numbers by the header of their row and the task; of several numbers of a cell, the first counts."""
    scores: dict[tuple[str, str], Score] = {}
    for row in rows:
        values = {**row, "truncation_percent": 100 * row["truncated"], "M_T": row["m_t"]}
        for name, title in {**_TASK_ROWS, **_CONTEXT_ROWS}.items():
            scores.setdefault((title.format(row["context"]), row["task"]), Score(float(values[name])))
    return scores


def _papers() -> dict[tuple[str, str], Score]:
    """Return the paper's numbers by the header of their row and the task."""
    table = published.tables()[_NAME]
    scores = {}
    for context, numbers_of in table["context"].items():
        for name, title in {**_TASK_ROWS, **_CONTEXT_ROWS}.items():
            for task, number in zip(table["tasks"], {**table, **numbers_of}[name], strict=True):
                scores[title.format(int(context)), task.lower()] = Score(float(number))
    return scores


EXPERIMENTS = (
    _MaxShots(
        _NAME,
        "Task statistics: how many shots a context holds",
        "Counted with the model's tokenizer; no model runs.",
        settings=grids.CountSettings,
        count=_count,
    ),
)
