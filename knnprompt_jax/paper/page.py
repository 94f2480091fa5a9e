"""The report on a folder of records: the paper's page as HTML, or its tables as text or Markdown."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from knnprompt_jax import errors, options
from knnprompt_jax.paper import experiments
from knnprompt_jax.prompts import statistics
from knnprompt_jax.report import drawing, names, overview, page, published, tables
from knnprompt_jax.report.page import Section
from knnprompt_jax.report.results import Record
from knnprompt_jax.runs import records as records_lib

_TITLE = "kNN Prompting: results beside the paper's"
_TEXT = (
    "Every table and figure of “kNN Prompting: Beyond-Context Learning with Calibration-Free Nearest Neighbor Inference” "
    "(Xu et al., ICLR 2023). A table shows our number above the paper's number and their difference; ✓ means that it lies within two "
    "standard errors of the difference of both means, ✗ that it does not; – means that nothing was run, followed by the paper's number."
)


@dataclasses.dataclass(frozen=True)
class ReportSettings(options.Options):
    """The records to report and the form of the report."""

    records: str = options.option(
        "results", "Folder of records, or folder with a folder of records per experiment.", needed=True
    )
    output: str = options.option(
        "report", "Folder to write index.html and tables/ to, with --format=html.", needed=True
    )
    format: str = options.option(
        "html",
        "html: a page beside the paper's numbers; text, markdown: tables on the terminal.",
        choices=("html", "text", "markdown"),
    )


def run(settings: ReportSettings) -> str:
    """Write the page and return its path, or return the tables; with text or Markdown the records may be of any runs.

    Raises:
      UserError: there are no records of this version, or a library for pages is missing.
    """
    folder = pathlib.Path(settings.records)
    if settings.format == "html":
        return f"page: {write(folder, page.folder(settings.output))}"
    if any(folder.glob("*.json")) or not any((folder / name).is_dir() for name in experiments.EXPERIMENTS):
        return overview.by_shots(records_lib.read_all(folder), settings.format == "markdown")
    render = tables.to_markdown if settings.format == "markdown" else tables.to_text
    with drawing.style():
        return "\n".join(render(table) for section in sections(read(folder), folder) for table in section.tables)


def write(folder: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    """Write the page of the results in a folder, and its tables, to another folder; return the path of the page."""
    results = read(folder)
    with drawing.style():
        shown = sections(results, folder)
    missing = [each.title for name, each in experiments.EXPERIMENTS.items() if name not in results]
    return page.write(
        page.Page(
            title=_TITLE,
            text=f"{_TEXT} {_unknown_models(results)}",
            sections=shown,
            counts=list(map(_counts, shown)),
            note=f"Without records: {'; '.join(missing)}." if missing else "",
        ),
        output,
    )


def read(folder: pathlib.Path) -> Mapping[str, Sequence[Any]]:
    """Return the records in the sub-folder of each experiment that has any.

    Raises:
      UserError: there is no folder, it has no records, or a file is of another version.
    """
    if not folder.is_dir():
        raise errors.UserError(f"{folder}: no such folder of results")
    results = {name: each.read(folder / name) for name, each in experiments.EXPERIMENTS.items()}
    if not any(results.values()):
        listed = ", ".join(list(results)[:3])
        hint = "; for records of other runs use --format=text" if any(folder.glob("*.json")) else ""
        raise errors.UserError(f"{folder}: no results: records are expected in a folder of it named {listed} …{hint}")
    return {name: records for name, records in results.items() if records}


def sections(results: Mapping[str, Sequence[Any]], folder: pathlib.Path) -> list[Section]:
    """Return the section of every experiment that has records or numbers in the paper."""
    drawn = [each.section(results.get(name, ()), folder / name) for name, each in experiments.EXPERIMENTS.items()]
    return [section for section in drawn if section.tables or section.figures or section.maps]


def _counts(section: Section) -> str:
    """Return a section's number of records, and how many of its cells agree with the paper."""
    records, verdicts = section.facts.get("Records", ""), section.verdicts
    counted = f"{records} record{'' if records == '1' else 's'}" if records else ""
    return ", ".join(filter(None, (counted, f"{sum(verdicts)} of {len(verdicts)} ✓" if verdicts else "")))


def _unknown_models(results: Mapping[str, Sequence[Any]]) -> str:
    """Say so if the paper has no result of any model of these records."""
    models = {record.model for records in results.values() for record in records if isinstance(record, Record)}
    if not models or {published.model_of(model) for model in models} & published.models():
        return ""
    listed = ", ".join(names.model(model) for model in sorted(models))
    return (
        f"The paper has no results of {listed}, the model of these runs: its accuracies are shown as a reference, without a difference. "
        f"In a context of more than {statistics.LONGEST_PUBLISHED_CONTEXT:,} tokens, the paper's longest, M_T is at most "
        f"{statistics.SHOTS_IN_LONG_CONTEXTS} demonstrations per class, even if more would fit."
    )
