"""A folder of results → the paper's page: every experiment that has records, beside the paper's numbers."""

import pathlib
from collections.abc import Sequence

from knnprompt_jax.report import builders, cases, drawing, names, page, provenance, published, reading, task_statistics
from knnprompt_jax.report.sections import Section

_CONTENTS = ("Records", "Cells with a counterpart", "Within two standard errors")
EXPERIMENTS = tuple(builders.TITLES)
_TITLE = "kNN Prompting: results beside the paper's"
_TEXT = (
    "Every table and figure of “kNN Prompting: Beyond-Context Learning with Calibration-Free Nearest Neighbor Inference” "
    "(Xu et al., ICLR 2023) for which there are records. In a table, ours stands above the paper's number and their "
    "difference; ✓ says that it lies within two standard errors, ✗ that it does not."
)


def run(records: str, output: str) -> pathlib.Path:
    """Reads the results in one folder and writes the page and its tables to another; returns where the page is.

    Raises:
        UserError: no results there, or files that are not this version's records.
    """
    results = reading.read(pathlib.Path(records), EXPERIMENTS)
    place = page.folder(output)
    with drawing.style():
        found = sections(results)
    missing = [builders.TITLES[name][0] for name in EXPERIMENTS if name not in {section.name for section in found}]
    compared = any(section.verdicts for section in found)
    return page.write(
        page.Page(
            title=_TITLE,
            text=f"{_TEXT} {_models(results)}",
            sections=found,
            columns=_CONTENTS if compared else _CONTENTS[:1],
            cells=[_contents(section)[: len(_CONTENTS) if compared else 1] for section in found],
            note=f"Without records: {'; '.join(missing)}." if missing else "",
        ),
        place,
    )


def sections(results: reading.Results) -> list[Section]:
    """The section of every experiment that has records, in the paper's order."""
    found = [_section(name, results) for name in EXPERIMENTS if results.records.get(name)]
    if results.statistics:
        name = reading.MAX_SHOTS
        found.insert(0, Section(name, *builders.TITLES[name], {}, (task_statistics.table(results.statistics),)))
    return found


def _section(name: str, results: reading.Results) -> Section:
    records = results.records[name]
    heading, facts = builders.TITLES[name], provenance.facts(records)
    if name == reading.CASE_STUDY:
        return Section(name, *heading, facts, maps=tuple(cases.maps(results.folder / name, records)))
    tables, figures = builders.BUILDERS[name](records)
    return Section(name, *heading, facts, tuple(tables), figures=tuple(figures))


def _contents(section: Section) -> Sequence[str]:
    cells = [cell for table in section.tables for cell in table.cells if cell.difference is not None]
    judged = section.verdicts
    within = f"{sum(judged)} of {len(judged)}" if judged else "–"
    return section.facts.get("Records", "–"), str(len(cells) or "–"), within


def _models(results: reading.Results) -> str:
    """Plain words on whether anything here can be held against the paper."""
    models = {record.model for group in results.records.values() for record in group}
    known = {*published.SIZES.values(), *published.FINE_TUNED.values()}
    if not models or {published.model_of(model) for model in models} & known:
        return ""
    listed = ", ".join(names.model(model) for model in sorted(models))
    return (
        f"These runs are of {listed}, which the paper has no results of: its numbers are shown as a reference, and no "
        "difference is drawn."
    )
