"""Shots that a context holds, beside the paper's: facts of texts and tokenizer, without a model."""

from collections.abc import Mapping, Sequence
from typing import Any

from knnprompt_jax.report import names, published
from knnprompt_jax.report.scores import Score
from knnprompt_jax.report.tables import Cell, Row, Table


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row a quantity, a column a task."""
    tasks = names.ordered("task", [row["task"] for row in rows])
    contexts = sorted({int(row["context"]) for row in rows})
    quantities: list[tuple[str, str, int | None]] = [
        ("classes", "num_classes", None),
        ("tokens of a template, mean", "average_template_tokens", None),
        *((f"shots that {context:,} tokens hold", "max_shots", context) for context in contexts),
    ]
    found = {(row["task"], int(row["context"])): row for row in rows}
    lines = []
    for title, name, context in quantities:
        ours = {task: found.get((task, context or contexts[0])) for task in tasks}
        cells = [Cell(_score(ours[task], name), _paper(task, name, context), True) for task in tasks]
        lines.append(Row((title,), tuple(cells), digits=1 if name == "average_template_tokens" else 0))
    return Table(
        name="max_shots",
        caption="Task statistics, and the most shots a class for which at most 5 % of the prompts are cut.",
        headers=("",),
        columns=tuple(names.task(task) for task in tasks),
        rows=tuple(lines),
    )


def _score(row: Mapping[str, Any] | None, name: str) -> Score | None:
    return None if row is None else Score(float(row[name]))


def _paper(task: str, name: str, context: int | None) -> Score | None:
    table = published.tables()["max_shots"]
    order = [one.lower() for one in table["tasks"]]
    values = table["context"].get(str(context), {}).get(name) if context else table[name]
    return Score(values[order.index(task)]) if values and task in order else None
