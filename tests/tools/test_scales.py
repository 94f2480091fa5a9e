"""Records that cannot be compared."""

import dataclasses

import pytest

from knnprompt_jax.common import errors
from tests.study.small_world import make_record
from tools import scales


def test_two_records_of_a_run_and_other_test_rows_are_refused():
    record = make_record()
    with pytest.raises(errors.UserError, match="an earlier record is of the same run"):
        scales.Scale([record, record])
    with pytest.raises(errors.UserError, match="other test rows than in earlier records of mr"):
        scales.Scale([record, dataclasses.replace(record, seed=4, true=("0",) * 4)])
