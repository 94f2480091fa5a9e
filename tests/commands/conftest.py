"""Rows for the classifier of the shipped model."""

import pytest

from knnprompt_jax.tasks import catalogue


@pytest.fixture(scope="session")
def rows() -> list[dict]:
    """The demo's test rows."""
    return [dict(row.fields) for row in catalogue.load_rows(catalogue.get("demo"), "dev_subsample")]
