"""Rows from the Hugging Face Hub, through the optional `datasets` library."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from knnprompt_jax import errors

_UNLABELLED = (None, -1)


@dataclasses.dataclass(frozen=True)
class HubSource:
    """Where the Hub has a task, and how its columns, splits and labels are called there.

    Attributes:
      dataset: id on the Hub, or a folder that `datasets` can load.
      columns: Hub column by field.
      labels: our label string by the value in `label_column`; None and -1 stand for no label.
      splits: Hub split by our name of it.
      config: configuration of the dataset, where it has several.
      revision: branch, tag or commit on the Hub.
    """

    dataset: str
    columns: Mapping[str, str]
    labels: Mapping[Any, str]
    splits: Mapping[str, str]
    config: str | None = None
    label_column: str = "label"
    revision: str | None = None


def read(source: HubSource, split: str) -> list[tuple[str, dict[str, Any]]]:
    """The rows of a split as (place, row), in the layout of a local file: fields and, where labelled, `label`.

    Raises:
      UserError: on a split the source does not have, without `datasets`, or where the dataset cannot be had.
    """
    if split not in source.splits:
        raise errors.UserError(f"{source.dataset} has no split {split!r}; choose from {', '.join(source.splits)}")
    try:
        import datasets
    except ImportError as error:
        raise errors.UserError(
            f"reading {source.dataset} needs the `datasets` library: install it, or use a local folder (data_dir)"
        ) from error
    # Not at the top: it brings the client's HTTP library, which few runs need.
    from knnprompt_jax import hub_client

    options = {"split": source.splits[split], "revision": source.revision}
    try:
        rows = hub_client.patiently(lambda: datasets.load_dataset(source.dataset, source.config, **options))
    except Exception as error:  # the library lets through the errors of its network, cache and file layers
        revision = f", revision {source.revision!r}" if source.revision else ""
        raise errors.UserError(
            f"cannot load data set {source.dataset!r}{revision}: {hub_client.reason(error)}"
        ) from error
    for column in (*source.columns.values(), source.label_column):
        if column not in rows.column_names:
            raise errors.UserError(
                f"{source.dataset}, split {split!r}, has no column {column!r}; it has {', '.join(rows.column_names)}"
            )
    return [_row(source, f"{source.dataset}/{split}:{number}", row) for number, row in enumerate(rows)]


def _row(source: HubSource, place: str, row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    renamed = {field: row[column] for field, column in source.columns.items()}
    value = row[source.label_column]
    if value in _UNLABELLED:
        return place, renamed
    if value not in source.labels:
        raise errors.UserError(f"{place}: unknown label {value!r}; choose from {', '.join(map(str, source.labels))}")
    return place, renamed | {"label": source.labels[value]}
