"""Rows for the classifier of the shipped model."""

import json

import pytest

from knnprompt_jax.tasks import catalogue


@pytest.fixture(scope="session")
def rows() -> list[dict]:
    """The demo's test rows."""
    text = (catalogue.demo_folder() / "dev_subsample.jsonl").read_text(encoding="utf-8")
    return [{"sentence": json.loads(line)["sentence"]} for line in text.splitlines()]
