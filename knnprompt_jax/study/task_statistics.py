"""Dataset statistics (two tables): classes, template tokens, and the shots that 1,024 and 2,048 tokens hold.

The paper counted them with GPT-2's tokenizer: pass a folder with that tokenizer as `tokenizer`.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from knnprompt_jax.cli import paper_settings as grids
from knnprompt_jax.common import errors, files, parallel
from knnprompt_jax.inference.prompts import shot_limits, word_tokenizer
from knnprompt_jax.models import registry as models
from knnprompt_jax.models import tokenizers
from knnprompt_jax.report import names, page, published, tables
from knnprompt_jax.report.results import Score
from knnprompt_jax.study import job_inputs
from knnprompt_jax.study.paper_experiment import Experiment

_NAME = "max_shots"
_ROWS = {
    "num_classes": "classes",
    "average_template_tokens": "tokens of a template, mean",
    "max_shots": "shots that {:,} tokens hold",
    "truncation_percent": "TP for {:,} tokens: truncated prompts, %",
    "M_T": "M_T for {:,} tokens",
}


class _MaxShots(Experiment):
    """An experiment that counts tokens and runs no model."""

    def read(self, folder: pathlib.Path) -> Sequence[Mapping[str, Any]]:
        """Return the rows that `count` wrote; raise UserError if the file has none."""
        path = folder / f"{_NAME}.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise errors.UserError(f"{path}: no task statistics ({errors.one_line(error)}); count again") from None

    def section(
        self, records: Sequence[Mapping[str, Any]], folder: pathlib.Path, with_figures: bool = True
    ) -> page.Section:
        """Return the table of the rows; texts and a tokenizer determine them, without a model."""
        del folder, with_figures
        return page.Section(self.name, self.title, self.text, tables=(_table(records),))


def count(settings: grids.CountSettings) -> str:
    """Count, write <output>/max_shots/max_shots.json, {"rows": [a row per task and context]}, and return the table.

    Raises:
        UserError: a task or tokenizer is unreadable.
    """
    folder = pathlib.Path(settings.tokenizer) if settings.tokenizer else models.describe(settings.models[0])[1]
    tokenize = word_tokenizer.WordTokenizer(tokenizers.load(folder))
    rows = []
    for name in settings.tasks:
        loaded = job_inputs.load_rows(settings, name)
        found = shot_limits.describe(loaded.task, loaded.train, loaded.evaluation, tokenize, settings.contexts)
        rows += [{**row, "task": name} for row in found]
    path = pathlib.Path(settings.output) / _NAME / f"{_NAME}.json"
    parallel.call_in_main(lambda: files.write(path, json.dumps({"rows": rows}, indent=1)))
    return tables.to_text(_table(rows))


def _table(rows: Sequence[Mapping[str, Any]]) -> tables.Table:
    """Return a row per quantity and a column per task."""
    ours = []
    for row in rows:
        values = {**row, "truncation_percent": 100 * row["truncated"], "M_T": row["m_t"]}
        ours += _numbers(row["task"], row["context"], values)
    printed = published.tables()[_NAME]
    paper = []
    for context, by_context in printed["context"].items():
        for index, task in enumerate(printed["tasks"]):
            columns = {**printed, **by_context}
            values = {name: columns[name][index] for name in _ROWS}
            paper += _numbers(task.lower(), int(context), values)
    ours_frame = pd.DataFrame(ours, columns=["", "task", "score"])
    cells = tables.pivot(ours_frame, pd.DataFrame(paper), ("", "task"), lambda numbers: numbers.score.iloc[0])
    caption = "Task statistics, and the most shots per class for which at most 5 % of the prompts are truncated."
    columns = {task: names.task(task) for task in names.ordered("task", {task for _, task in cells})}
    return tables.build(_NAME, caption, ("",), columns, cells)


def _numbers(task: str, context: int, values: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the numbers of a task and context by the header of their row."""
    titles = {name: title.format(context) for name, title in _ROWS.items()}
    return [{"": title, "task": task, "score": Score(float(values[name]))} for name, title in titles.items()]


EXPERIMENT = _MaxShots(
    _NAME,
    "Task statistics: how many shots a context holds",
    "Counted with the model's tokenizer; no model runs.",
    settings=grids.CountSettings,
)
