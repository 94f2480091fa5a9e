"""Write the page of labels to check and rows to label, and the table to edit for the next fit."""

import itertools
import pathlib
import re
from collections.abc import Sequence

from knnprompt_jax.classifier import classifier_file
from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.commands import label_table
from knnprompt_jax.common import files, progress
from knnprompt_jax.report import measures, page
from knnprompt_jax.report.page import Listing, Section
from knnprompt_jax.study import job_inputs as inputs
from knnprompt_jax.tasks import columns
from knnprompt_jax.tasks.task import Example

_MAX_ROWS = 20  # Rows of a listing.
_GOES_ON = re.compile(r"(?<=[\u0590-\u08ff])(?= \(|[;,])")  # Where a reason leaves a label written from right to left.
_NEXT = (
    "next: where a label is wrong, write the right one into `suggested`; where it is right, write x into `checked`; label the "
    "rows to label; then fit with --train_file={}"
)


def run(settings: commands.LookSettings) -> str:
    """Write the page of a saved classifier and the table to edit; return what is printed.

    Raises:
        UserError: there is no saved classifier, it has too few anchors, the unlabelled rows cannot be read, or the
            output cannot be written.
    """
    page.check(pathlib.Path(settings.output), "look")
    output = pathlib.Path(settings.output)
    saved = classifier_file.read(pathlib.Path(settings.classifier))
    rows = label_table.train_rows(saved.content)
    progress.note(f"classifying the rows of {saved.path} by each other, with {saved.content.model.name}")
    fitted = saved.restore(saved.load_model(inputs.choose_saved_mesh(settings.mesh, saved.content.model)))
    predicted_N, shares_NC = fitted.left_out()
    doubts = label_table.mark_doubts(fitted, shares_NC, rows) if rows else []
    table = [*rows.values()]
    chosen = label_table.rows_to_label(fitted, table, settings) if settings.input else []
    # The table is written before the page is drawn: a person may edit it meanwhile.
    path = _write_new(output / commands.TABLE, label_table.write([*table, *chosen]))
    task = fitted.task
    shown = (columns.PROBABILITY, columns.REASON)
    anchors = [fitted.content.anchors[index] for index in doubts]
    suspects = [(task.retrieval_text(row), row.label, *(rows[row.row][name] for name in shown)) for row in anchors]
    to_label = [(task.retrieval_text(Example(row, "")), *(row[name] for name in columns.COMPUTED)) for row in chosen]
    sections = build(path.name, suspects, to_label)
    introduction = f"The classifier was fitted to descriptions of its classes, read by {fitted.model.name}."
    if rows:
        right = measures.percent((predicted_N == fitted.content.y_N).mean())
        read = f"{len(fitted.content.anchors):,} train rows, read by {fitted.model.name}."
        introduction = f"{read} {right} of them are classified correctly by the others."
    written = page.write(output, "look", f"Train rows of {saved.path.resolve().name}", introduction, sections)
    lines = [f"labels to check: {len(doubts):,} of {len(fitted.content.anchors):,}"]
    if chosen:
        lines.append(f"rows to label: {len(chosen):,}, at the end of the table")
    return "\n".join([*lines, f"table: {path}", f"page: {written}", _NEXT.format(path)])


def _write_new(path: pathlib.Path, content: bytes) -> pathlib.Path:
    """Write a table, under the next free name if a person may have edited an earlier table; return its path."""
    names = itertools.chain([path], (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2)))
    path = next(name for name in names if not name.exists() or name.read_bytes() == content)
    files.write(path, content)
    return path


def build(table: str, suspects: Sequence[tuple[str, ...]], to_label: Sequence[tuple[str, ...]] = ()) -> list[Section]:
    """Return the page's sections.

    Args:
        table: the name of the table to edit.
        suspects: the text, the label, its probability and the reason of each label to check.
        to_label: the text, the probability, the novelty and the reason of each row to label.
    """
    to_check = (
        "The least probable labels, then labels of texts that have several. The probability of a label is raised if its "
        f"class is rare. In {table}, write the right label into “{columns.SUGGESTED}”, or x into “{columns.CHECKED}”."
    )
    headers = ("text", "label", "probability", "reason")
    sections = [_listing("suspects", "Labels to check", to_check, headers, suspects)]
    if to_label:
        text = f"The last rows of {table}, the most useful first. Those of small novelty are unlike the train rows."
        sections.insert(0, _listing("to_label", "What to label next", text, ("text", *columns.COMPUTED), to_label))
    return sections


def _listing(name: str, title: str, text: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Section:
    """Return a section that lists the first rows, whose last cells are reasons."""
    rows = [(*row[:-1], _GOES_ON.sub("\u200e", row[-1]).replace(" %", "\u00a0%")) for row in rows]
    caption = f"The first {_MAX_ROWS} of {len(rows):,} rows." if len(rows) > _MAX_ROWS else ""
    return Section(name, title, text, listings=(Listing(caption, headers, tuple(rows[:_MAX_ROWS])),))
