"""Rows from the Hugging Face Hub, through the optional `datasets` library."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from knnprompt_jax import errors

_UNLABELLED = (None, -1)


@dataclasses.dataclass(frozen=True)
class HubSource:
    """A task's dataset on the Hub, with the names of its columns, splits and labels.

    Attributes:
        dataset: the id on the Hub, or a folder that `datasets` can load.
        columns: the Hub's column of each field.
        labels: the label string of each value of `label_column`; None and -1 mean no label.
        splits: the Hub's split of each of our splits.
        config: the configuration of the dataset, if it has several.
        label_column: the Hub's column of the labels.
        revision: the branch, tag or commit on the Hub.
    """

    dataset: str
    columns: Mapping[str, str]
    labels: Mapping[Any, str]
    splits: Mapping[str, str]
    config: str | None = None
    label_column: str = "label"
    revision: str | None = None


def read(source: HubSource, split: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of a split as (place, row); a row has the task's fields and, if labelled, `label`.

    Raises:
        UserError: the split is unknown, `datasets` is not installed, or the dataset cannot be loaded.
    """
    if split not in source.splits:
        raise errors.UserError(f"{source.dataset} has no split {split!r}; choose from {', '.join(source.splits)}")
    rows = _load(source, split)
    for column in (*source.columns.values(), source.label_column):
        if column not in rows.column_names:
            raise errors.UserError(
                f"{source.dataset}, split {split!r}, has no column {column!r}; it has {', '.join(rows.column_names)}"
            )
    return [_renamed(source, f"{source.dataset}/{split}:{number}", row) for number, row in enumerate(rows)]


def _load(source: HubSource, split: str) -> Any:
    """Return the rows of a split with the Hub's columns."""
    try:
        import datasets
    except ImportError as error:
        raise errors.UserError(
            f"reading {source.dataset} needs datasets: pip install 'knnprompt_jax[hub]', or use a local folder "
            "(--data_dir=)"
        ) from error
    # Imported here because it loads an HTTP library that few runs need.
    from knnprompt_jax import hub_client

    try:
        return datasets.load_dataset(
            source.dataset, source.config, split=source.splits[split], revision=source.revision
        )
    except Exception as error:  # The library raises the errors of its network, cache and file layers.
        revision = f", revision {source.revision!r}" if source.revision else ""
        raise errors.UserError(
            f"cannot load data set {source.dataset!r}{revision}: {hub_client.reason(error)}"
        ) from error


def _renamed(source: HubSource, place: str, row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the place of a row and its cells under our names; raise UserError at an unknown label."""
    cells = {field: row[column] for field, column in source.columns.items()}
    value = row[source.label_column]
    if value in _UNLABELLED:
        return place, cells
    if value not in source.labels:
        choices = ", ".join(dict.fromkeys(map(str, source.labels)))
        raise errors.UserError(f"{place}: unknown label {value!r}; choose from {choices}")
    return place, {**cells, "label": source.labels[value]}
