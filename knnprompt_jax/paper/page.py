"""The report on a folder of records: the paper's page as HTML, or its tables as text or Markdown."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from knnprompt_jax import errors
from knnprompt_jax.paper import experiments
from knnprompt_jax.report import drawing, overview, page
from knnprompt_jax.report import records as records_lib
from knnprompt_jax.settings import grids

_TITLE = "kNN Prompting: results beside the paper's"
_OTHER_TITLE = "kNN Prompting: results"
_OTHER_TEXT = "Tables give the mean over seeds ± the sample standard deviation."
_TEXT = (
    "Tables and figures of “kNN Prompting: Beyond-Context Learning with Calibration-Free Nearest Neighbor Inference” "
    "(Xu et al., ICLR 2023). Tables show our number above the paper's. For the same model, they show the difference, too: "
    "✓ if it is at most two standard errors, ✗ if it is more."
)


def run(settings: grids.ReportSettings) -> str:
    """Write the page and return its path, or return the tables that have records, other runs than the paper's included.

    Raises:
        UserError: there are no records of this version, or the format is html and a library for pages is missing.
    """
    folder = pathlib.Path(settings.records)
    if settings.format == "html":
        page.check_libraries("; --format=text needs none")
        return f"page: {write(folder, pathlib.Path(settings.output))}"
    results, unknown = _read(folder)
    found = [overview.section(unknown)] if unknown else []
    if any(results.values()) or not unknown:
        with_records = {name: records for name, records in results.items() if records}
        found += _draw(with_records, folder, with_figures=False)
    with_tables = [section for section in found if section.tables]
    if not with_tables:
        raise errors.UserError(f"{folder}: its records have no tables, only maps: --format=html draws them")
    return "\n".join(page.to_text(section, settings.format == "markdown") for section in with_tables)


def write(folder: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    """Write the page of the results in a folder, and its tables, to another folder; return the path of the page."""
    found = sections(folder)
    has_paper = found[0].name != overview.NAME
    title = _TITLE if has_paper else _OTHER_TITLE
    text = _TEXT if has_paper else _OTHER_TEXT
    return page.write(output, title, text, found)


def sections(folder: pathlib.Path) -> list[page.Section]:
    """Return the sections of the experiments that have records, then those that show only the paper's numbers.

    If no experiment has records, return the section of the records of other runs, such as those of `compare`.

    Args:
        folder: the results, or a packed file of them.

    Raises:
        UserError: there is no folder, it has no records, or a file is of another version.
    """
    results, unknown = _read(folder)
    if unknown and not any(results.values()):
        return [overview.section(unknown)]
    with drawing.style():
        drawn = _draw(results, folder)
    if unknown:
        logging.warning(
            "%s: %d of %d records belong to no table of the paper and are left out; --format=text shows them",
            folder,
            len(unknown),
            len(unknown) + sum(map(len, results.values())),
        )
    return drawn


def _read(folder: pathlib.Path) -> tuple[dict[str, list[Any]], list[records_lib.Record]]:
    """Return the records of each experiment, then the records of other runs.

    Records of an experiment are in the folder or in its subfolder; others are in the folder.
    """
    if not folder.exists():
        raise errors.UserError(f"{folder}: no such folder of results")
    own = records_lib.read_all(folder) if folder.is_file() or any(folder.glob("*.json")) else []
    results = {
        name: [*(record for record in own if record.experiment == name), *experiment.read(folder / name)]
        for name, experiment in experiments.EXPERIMENTS.items()
    }
    return results, [record for record in own if record.experiment not in experiments.EXPERIMENTS]


def _draw(results: Mapping[str, Sequence[Any]], folder: pathlib.Path, with_figures: bool = True) -> list[page.Section]:
    """Return the sections, those without records last; figures need matplotlib."""
    if not any(results.values()):
        listed = ", ".join(list(experiments.EXPERIMENTS)[:3])
        raise errors.UserError(f"{folder}: no results: records are expected in its subfolders {listed} …")
    drawn = []
    for name in sorted(results, key=lambda name: not results[name]):
        own_folder = folder / name if (folder / name).is_dir() else folder
        drawn.append(experiments.EXPERIMENTS[name].section(results[name], own_folder, with_figures))
    return [section for section in drawn if section.tables or section.figures or section.maps]
