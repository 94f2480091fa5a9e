"""Fixtures every test may use."""

import pathlib

import pytest

SHARED = pathlib.Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
    """The folder of reference data beside the repository; tests that need it are skipped where it is absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"no reference data beside the repository ({SHARED.name}/data)")
    return SHARED
