"""The report on a folder of records: the paper's page as HTML, or its tables as text."""

import pathlib

from knnprompt_jax.cli import command_settings as commands
from knnprompt_jax.common import errors
from knnprompt_jax.report import accuracies, drawing, page
from knnprompt_jax.report import records as records_lib
from knnprompt_jax.study.paper_tables import EXPERIMENTS

_TITLE = "kNN Prompting: results beside the paper's"
_TEXT = (
    "Tables and figures of “kNN Prompting: Beyond-Context Learning with Calibration-Free Nearest Neighbor Inference” "
    "(Xu et al., ICLR 2023), then tables of other runs: mean over seeds ± the sample standard deviation. Tables show our "
    "number above the paper's. For the same model, they show the difference, too: ✓ if it is at most two standard "
    "errors, ✗ if it is more."
)


def run(settings: commands.ReportSettings) -> str:
    """Write the page and return its path, or return the tables that have records.

    Raises:
        UserError: there are no records of this version, or the format is html and a library for pages is missing.
    """
    folder = pathlib.Path(settings.records)
    if settings.format == "html":
        page.check_libraries("; --format=text needs none")
        return f"page: {write(folder, pathlib.Path(settings.output))}"
    return "\n".join(page.to_text(section) for section in sections(folder, with_figures=False) if section.tables)


def write(folder: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    """Write the page of the results in a folder, and its tables, to another folder; return the path of the page."""
    with drawing.style():
        return page.write(output, _TITLE, _TEXT, sections(folder))


def sections(folder: pathlib.Path, with_figures: bool = True) -> list[page.Section]:
    """Return the section of runs outside the paper, then those of experiments with records.

    Records of an experiment are in the folder or in its subfolder; others are in the folder.

    Args:
        folder: the results, or a packed file of them.
        with_figures: whether to draw figures, for which matplotlib is required.

    Raises:
        UserError: there is no folder, it has no records, or a file is of another version.
    """
    in_folder = records_lib.read_all(folder) if not folder.is_dir() or any(folder.glob("*.json")) else []
    found = {name: [*experiment.read(folder / name)] for name, experiment in EXPERIMENTS.items()}
    others: list[records_lib.Record] = []
    for record in in_folder:
        found.get(record.experiment, others).append(record)
    if not others and not any(found.values()):
        raise errors.UserError(f"{folder}: no records here or in subfolders {', '.join(list(EXPERIMENTS)[:3])} …")
    drawn: list[page.Section] = [accuracies.section(others)] if others else []
    for name in filter(found.get, found):
        own_folder = folder / name if (folder / name).is_dir() else folder
        section = EXPERIMENTS[name].section(found[name], own_folder, with_figures)
        if section.tables or section.figures or section.maps:
            drawn.append(section)
    return drawn
