"""SST2 seed by seed beside what the released code's README prints."""

import pytest

from knnprompt_jax.paper import experiments


def _rows(records):
    return experiments.get("sst2").draw(records)[0][0].rows


def test_sst2_stands_beside_the_released_codes_seed_by_seed(make_record):
    records = [make_record("sst2", "sst2", method, m, 2) for method, m in (("icl", 16), ("knn", 1024))]
    icl, knn = (row.cells[0] for row in _rows(records))
    assert (icl.paper.mean, knn.paper.mean) == pytest.approx((81.25, 88.67))
    assert knn.difference == pytest.approx(100 * records[1].accuracy - 88.67)
    (other,) = _rows([make_record("sst2", "sst2", "knn", 64, 2)])
    assert other.cells[0].difference is None
