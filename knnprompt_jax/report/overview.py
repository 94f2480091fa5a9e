"""Methods against tasks for each number of shots, from any folder of records."""

import collections

import numpy as np
import pandas as pd

from knnprompt_jax import errors, tables
from knnprompt_jax.methods import registry
from knnprompt_jax.report import results
from knnprompt_jax.report.results import Record

COMMONEST = "(the commonest class)"
_UNEVEN = 1.5  # A task is uneven if its commonest class has this many times its even share of the rows.
_MOST = 4  # Differences and values that an error lists.


def by_shots(records: list[Record], markdown: bool = False) -> str:
    """Return a table of methods against tasks for each number of shots: mean ± sample standard deviation over seeds, in %.

    A second table has macro F1 for tasks with classes of uneven size. A cell with fewer seeds than the table's maximum gives
    their number in brackets.

    Raises:
      UserError: two records have the same method, task, shots and seed; the message names the settings that differ.
    """
    frame = results.frame(records)
    for (name, task, shots, seed), same in results.groups(frame, ["method", "task", "shots", "seed"]).items():
        if len(same) > 1:
            raise errors.UserError(
                f"{len(same)} records of {name} on {task}, {shots} shots, seed {seed}, that differ in "
                f"{_differences(list(same.record))}: put them in separate folders"
            )
    counts = frame.true.map(lambda true: max(collections.Counter(true).values()) / len(true))
    classes = frame.num_classes.where(frame.num_classes > 0, frame.true.map(lambda true: len(set(true))))
    frame = frame.assign(commonest=counts, uneven=counts * classes >= _UNEVEN)
    render, parts = tables.render_markdown if markdown else tables.render, []
    for (shots,), group in sorted(results.groups(frame, ["shots"]).items()):
        seeds = group.groupby(["method", "task"]).seed.size().max()
        heading = f"{shots} shots per class, {seeds} seed{'' if seeds == 1 else 's'}"
        commonest = group.drop_duplicates("task").commonest
        rows = [[COMMONEST, *(f"{100 * share:.1f}" for share in commonest)], *_rows(_accuracies(group), group, seeds)]
        parts += [f"### {heading}" if markdown else heading, "", render(["method", *group.task.unique()], rows), ""]
        if len(uneven := group[group.uneven]):
            macro = [(record.method, record.task, _title(record.method), record.macro_f1) for record in uneven.record]
            table = render(["method", *uneven.task.unique()], _rows(macro, uneven, seeds))
            parts += ["Macro F1 of tasks with classes of uneven size:", "", table, ""]
    return "\n".join(parts).rstrip()


def _accuracies(frame: pd.DataFrame) -> list[tuple[str, str, str, float]]:
    """Return (method, task, line title, accuracy), with the mean and the worst of a method that kept its best candidate."""
    lines = []
    for record in frame.record:
        found = {_title(record.method): record.accuracy}
        if tried := record.candidates:
            found |= {f"· mean of its {len(tried)}": float(np.mean(tried)), f"· worst of its {len(tried)}": min(tried)}
        lines += [(record.method, record.task, title, value) for title, value in found.items()]
    return lines


def _title(method: str) -> str:
    return registry.get(method).title


def _rows(lines: list[tuple[str, str, str, float]], frame: pd.DataFrame, seeds: int) -> list[list[str]]:
    """Return a row of texts per method and line title, a column per task."""
    values = pd.DataFrame(lines, columns=["method", "task", "title", "value"])
    cells = values.groupby(["method", "title", "task"], sort=False).value.apply(lambda group: _cell(list(group), seeds))
    table = cells.unstack("task", fill_value="").reindex(columns=frame.task.unique(), fill_value="")
    order = list(registry.METHODS)
    ordered = sorted(table.index, key=lambda place: order.index(place[0]))
    return [[title, *table.loc[(method, title)]] for method, title in ordered]


def _cell(values: list[float], seeds: int) -> str:
    return tables.spread(values) + (f" ({len(values)})" if len(values) < seeds else "")


def _differences(records: list[Record]) -> str:
    """Return the settings that differ between records, with their values."""
    rows = [{"model": each.model, "demo_shots": each.demo_shots, **each.settings, **each.cell} for each in records]
    settings = pd.json_normalize(rows).convert_dtypes().astype(object).fillna("").map(str)
    different = [
        f"{name} ({', '.join(values.unique()[:_MOST])})" for name, values in settings.items() if values.nunique() > 1
    ]
    return ", ".join(different[:_MOST]) or "the model's weights"
