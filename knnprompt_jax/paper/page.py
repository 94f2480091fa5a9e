"""The report on a folder of records: the paper's page as HTML, or its tables as text or Markdown."""

import pathlib
from collections.abc import Sequence
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.paper import experiments
from knnprompt_jax.report import drawing, overview, page
from knnprompt_jax.runs import records as records_lib
from knnprompt_jax.settings import grids

_TITLE = "kNN Prompting: results beside the paper's"
_TEXT = (
    "Every table and figure of “kNN Prompting: Beyond-Context Learning with Calibration-Free Nearest Neighbor Inference” "
    "(Xu et al., ICLR 2023). A table shows our number above the paper's number and their difference; ✓ means that it lies within two "
    "standard errors of the difference of both means, ✗ that it does not. Tables without a run of ours have the paper's numbers alone."
)


def run(settings: grids.ReportSettings) -> str:
    """Write the page and return its path, or return the tables; with text or Markdown the records may be of any runs.

    Raises:
      UserError: there are no records of this version, or a library for pages is missing.
    """
    folder = pathlib.Path(settings.records)
    if settings.format == "html":
        return f"page: {write(folder, page.folder(settings.output))}"
    of_paper = _has_experiments(folder)
    found = sections(folder) if of_paper else [overview.section(records_lib.read_all(folder))]
    return "\n".join(page.to_text(section, settings.format == "markdown") for section in found if section.tables)


def write(folder: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    """Write the page of the results in a folder, and its tables, to another folder; return the path of the page."""
    return page.write(output, _TITLE, _TEXT, sections(folder))


def _has_experiments(folder: pathlib.Path) -> bool:
    if folder.is_file():
        return all(record.experiment in experiments.EXPERIMENTS for record in records_lib.read_all(folder))
    return not any(folder.glob("*.json")) and any((folder / name).is_dir() for name in experiments.EXPERIMENTS)


def sections(folder: pathlib.Path) -> list[page.Section]:
    """Return the sections of the experiments with records in their sub-folders, then of those with the paper's numbers alone.

    Args:
      folder: the results, or a packed file of them.

    Raises:
      UserError: there is no folder, it has no records, or a file is of another version.
    """
    results: dict[str, Sequence[Any]]
    if folder.is_file():
        packed = records_lib.read_all(folder)
        results = {name: [record for record in packed if record.experiment == name] for name in experiments.EXPERIMENTS}
    elif folder.is_dir():
        results = {name: experiment.read(folder / name) for name, experiment in experiments.EXPERIMENTS.items()}
    else:
        raise errors.UserError(f"{folder}: no such folder of results")
    if not any(results.values()):
        listed = ", ".join(list(results)[:3])
        hint = "; for records of other runs use --format=text" if any(folder.glob("*.json")) else ""
        raise errors.UserError(f"{folder}: no results: records are expected in a folder of it named {listed} …{hint}")
    with drawing.style():
        order = sorted(experiments.EXPERIMENTS, key=lambda name: not results[name])
        drawn = [experiments.EXPERIMENTS[name].section(results[name], folder / name) for name in order]
    return [section for section in drawn if section.tables or section.figures or section.maps]
