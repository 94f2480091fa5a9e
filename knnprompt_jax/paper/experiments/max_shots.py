"""Dataset statistics: classes, template tokens, and the shots that 1,024 and 2,048 tokens hold (two tables).

The paper's were counted with GPT-2's tokenizer: --config.tokenizer=<folder of GPT-2's tokenizer>.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from knnprompt_jax import errors, files, options
from knnprompt_jax import tables as terminal
from knnprompt_jax.models import registry as models
from knnprompt_jax.models import tokenizers
from knnprompt_jax.paper import experiment
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.prompts import layout, statistics
from knnprompt_jax.report import names, published, sections
from knnprompt_jax.report.scores import Score
from knnprompt_jax.report.tables import Cell, Table, TableRow
from knnprompt_jax.runs import inputs

_NAME = "max_shots"
_FIELDS = {"task", "num_classes", "average_template_tokens", "context", "max_shots", "truncated", "m_t"}


@dataclasses.dataclass(frozen=True)
class Settings(settings_lib.GridSettings):
    """What is counted, by which tokenizer."""

    contexts: tuple[int, ...] = options.option((1024, 2048), "Context lengths in tokens.", least=1)
    tokenizer: str = options.option("", "A folder with a tokenizer; empty: the first model's.")


@dataclasses.dataclass(frozen=True)
class _MaxShots(experiment.Experiment):
    def read(self, folder: pathlib.Path) -> Sequence[Mapping[str, Any]]:
        """The rows that `count` wrote; raises UserError where they are not whole."""
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

    def section(self, records: Sequence[Mapping[str, Any]], folder: pathlib.Path) -> sections.Section:
        """The rows beside the paper's: facts of texts and tokenizer, without a model."""
        del folder
        return sections.Section(
            self.name, self.title, self.text, {}, tuple(self.draw(experiment.Shown(self.name, records))[0])
        )


def _count(settings: Settings) -> str:
    """Counts and writes <output>/max_shots/max_shots.json, {"rows": [a row for each task and context]}; gives them as a table.

    Raises UserError on tasks or a tokenizer that cannot be read, and where nothing is asked for.
    """
    if not settings.task_names or not settings.contexts:
        raise errors.UserError(f"{_NAME}: nothing to count with tasks={settings.tasks!r}, contexts={settings.contexts}")
    folder = pathlib.Path(settings.tokenizer) if settings.tokenizer else models.describe(settings.model_names[0])[1]
    tokenize = layout.tokenize_with(tokenizers.load(folder))
    rows = [row for name in settings.task_names for row in _rows(settings, name, tokenize)]
    path = pathlib.Path(settings.output) / _NAME / f"{_NAME}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.new_file(path) as unfinished:
        unfinished.write_text(json.dumps({"rows": rows}, indent=1), encoding="utf-8")
    header = ["task", "classes", "tokens", "context", "max shots", "M_T"]
    return f"{terminal.render(header, list(map(_line, rows)))}\n\nM_T in brackets: the paper's."


def _rows(settings: Settings, name: str, tokenize: layout.Tokenize) -> list[dict[str, Any]]:
    rows = inputs.load_rows(settings, name)
    described = statistics.describe(rows.task, rows.train, rows.evaluation, tokenize, settings.contexts)
    shared = {"task": name} | {field: getattr(described, field) for field in ("num_classes", "average_template_tokens")}
    return [{**shared, "context": context, **limit._asdict()} for context, limit in described.limits.items()]


def _line(row: Mapping[str, Any]) -> list[str]:
    printed = statistics.max_shots_in_context(row["task"], row["context"]) or "–"
    counts = f"{row['max_shots']} ({100 * row['truncated']:.0f} %)", f"{row['m_t']} [{printed}]"
    return [row["task"], f"{row['num_classes']}", f"{row['average_template_tokens']:.1f}", f"{row['context']}", *counts]


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each quantity, a column for each task."""
    printed = published.tables()[_NAME]
    tasks = names.ordered("task", [*(row["task"] for row in rows), *map(str.lower, printed["tasks"])])
    contexts = sorted({*(row["context"] for row in rows), *map(int, printed["context"])})
    quantities: list[tuple[str, str, int | None]] = [
        ("classes", "num_classes", None),
        ("tokens of a template, mean", "average_template_tokens", None),
        *(
            (title.format(f"{context:,}"), quantity, context)
            for context in contexts
            for title, quantity in (
                ("shots that {} tokens hold", _NAME),
                ("TP for {} tokens: prompts cut at so many, %", "truncation_percent"),
                ("M_T for {} tokens", "M_T"),
            )
        ),
    ]
    by_place = {(row["task"], row["context"]): _of_paper(row) for row in rows}
    first = {row["task"]: _of_paper(row) for row in reversed(rows)}
    lines = []
    for title, quantity, context in quantities:
        counted = {
            task: (by_place.get((task, context), {}) if context else first.get(task, {})).get(quantity)
            for task in tasks
        }
        digits = 1 if quantity == "average_template_tokens" else 0
        cells = (
            Cell(_score(value), _score(_printed(task, quantity, context)), True, digits=digits)
            for task, value in counted.items()
        )
        lines.append(TableRow((title,), tuple(cells)))
    caption = "Task statistics, and the most shots per class for which at most 5 % of the prompts are cut."
    return Table(_NAME, caption, ("",), tuple(map(names.task, tasks)), tuple(lines))


def _of_paper(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row by the names of the paper's quantities."""
    return {**row, "truncation_percent": 100 * row["truncated"], "M_T": row["m_t"]}


def _printed(task: str, quantity: str, context: int | None) -> float | None:
    printed = published.tables()[_NAME]
    order = [name.lower() for name in printed["tasks"]]
    values = printed["context"].get(str(context), {}).get(quantity) if context else printed[quantity]
    return values[order.index(task)] if values and task in order else None


def _score(value: float | None) -> Score | None:
    return None if value is None else Score(float(value))


EXPERIMENTS = (
    _MaxShots(
        _NAME,
        "Task statistics: how many shots a context holds",
        "Counted with the model's tokenizer; no model runs.",
        lambda shown: ([_table(shown.records)], []),
        settings=Settings,
        count=_count,
    ),
)
