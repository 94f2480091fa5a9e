"""A folder of results → the paper's page: every table and figure that has records, beside the paper's numbers."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from knnprompt_jax import errors
from knnprompt_jax.paper import experiments
from knnprompt_jax.prompts import statistics
from knnprompt_jax.report import drawing, names, page, published
from knnprompt_jax.report.scores import Record
from knnprompt_jax.report.sections import Section

_TITLE = "kNN Prompting: results beside the paper's"
_TEXT = (
    "Every table and figure of “kNN Prompting: Beyond-Context Learning with Calibration-Free Nearest Neighbor Inference” "
    "(Xu et al., ICLR 2023). In a table, ours stands above the paper's number and their difference; ✓ says that it lies within two "
    "standard errors of the difference of both means, ✗ that it does not; – where nothing was run, with the paper's number behind it."
)


def run(records: str, output: str) -> pathlib.Path:
    """Reads the results in one folder and writes the page and its tables to another; returns where the page is.

    Raises UserError where there are no results of this version, or where a library that draws is missing.
    """
    folder, place = pathlib.Path(records), page.folder(output)
    results = read(folder)
    with drawing.style():
        drawn = sections(results, folder)
    missing = [each.title for name, each in experiments.EXPERIMENTS.items() if name not in results]
    return page.write(
        page.Page(
            title=_TITLE,
            text=f"{_TEXT} {_models(results)}",
            sections=drawn,
            counts=list(map(_counts, drawn)),
            note=f"Without records: {'; '.join(missing)}." if missing else "",
        ),
        place,
    )


def read(folder: pathlib.Path) -> Mapping[str, Sequence[Any]]:
    """What each table or figure left in the folder's sub-folder of its name, in the paper's order.

    Raises UserError where there is no folder, nothing in it, or a file of another version.
    """
    if not folder.is_dir():
        raise errors.UserError(f"{folder}: no such folder of results")
    results = {name: each.read(folder / name) for name, each in experiments.EXPERIMENTS.items()}
    if not any(results.values()):
        listed = ", ".join(list(results)[:3])
        raise errors.UserError(f"{folder}: no results: records are expected in a folder of it named {listed} …")
    return {name: records for name, records in results.items() if records}


def sections(results: Mapping[str, Sequence[Any]], folder: pathlib.Path) -> list[Section]:
    """The section of every table or figure that has results, or numbers of the paper's."""
    drawn = [each.section(results.get(name, ()), folder / name) for name, each in experiments.EXPERIMENTS.items()]
    return [section for section in drawn if section.tables or section.figures or section.maps]


def _counts(section: Section) -> str:
    """How many records a section rests on, and in how many of its cells they agree with the paper."""
    records, verdicts = section.facts.get("Records", ""), section.verdicts
    counted = f"{records} record{'' if records == '1' else 's'}" if records else ""
    return ", ".join(filter(None, (counted, f"{sum(verdicts)} of {len(verdicts)} ✓" if verdicts else "")))


def _models(results: Mapping[str, Sequence[Any]]) -> str:
    """Plain words on whether anything here can be held against the paper."""
    models = {record.model for records in results.values() for record in records if isinstance(record, Record)}
    known = {*published.SIZES.values(), *published.own_models().values()}
    if not models or {published.model_of(model) for model in models} & known:
        return ""
    listed = ", ".join(names.model(model) for model in sorted(models))
    return (
        f"These runs are of {listed}, which the paper has no results of: its accuracies are shown as a reference, without a "
        f"difference. In a context of more than {statistics.LONGEST_PUBLISHED_CONTEXT:,} tokens, the paper's longest, M_T is "
        f"{statistics.SHOTS_IN_LONG_CONTEXTS} demonstrations per class at most, though more would fit."
    )
