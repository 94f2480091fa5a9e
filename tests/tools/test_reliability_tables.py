"""Tables of promises, novelty and labels: which runs count, and the shares that they show."""

import pytest

from tools import reliability_tables as tables
from tools.measure_reliability import Unit


def run(task, m, seed, rest, test=((None, None, 0), (None, None, 0)), error=0.02):
    """Return the unit and the record of a run on 100 texts of each kind, of which 80 are right."""
    texts = {"rows": 100, "right": 80, "calibration_error": error}
    parts = {"rest": {**texts, "promises": rest}, "test": {**texts, "promises": test}}
    return Unit("promises", task, m, seed), {"train_rows": 2 * m, **parts}


RECORDS = dict(
    [
        run("cr", 32, 1, [[None, None, 30], [50, 5, 60]], [[None, None, 3], [40, 5, 60]]),
        run("cr", 32, 2, [[None, None, 40], [None, None, 60]]),
        run("sst2", 128, 1, [[40, 3, 50], [60, 6, 70]], [[30, 1, 50], [60, 3, 70]], error=0.04),
        run("sst2", 128, 2, [[60, 3, 70], [80, 9, 90]], [[30, 1, 50], [60, 3, 70]], error=0.06),
    ]
)


def test_a_run_without_a_promise_breaks_none():
    *_, cr, sst2 = tables.promises(RECORDS).splitlines()
    assert cr == "| CR | 32 | 2 | 80.0 | 2.0 | 0 | – | – | – | 1 | 1 | 50.0 | 60.0 |"
    assert sst2 == "| SST2 | 128 | 2 | 80.0 | 5.0 | 2 | 1 | 50.0 | 60.0 | 2 | 1 | 70.0 | 80.0 |"
    assert [tables.kept(RECORDS, promise) for promise in (0.05, 0.1)] == ["75.0", "75.0"]
    assert [tables.kept(RECORDS, promise, if_given=True) for promise in (0.05, 0.1)] == ["50.0", "66.7"]
    assert [tables.kept(RECORDS, promise, "test") for promise in (0.05, 0.1)] == ["100.0", "75.0"]
    assert tables.promised(RECORDS, 0.1, 32) == "1 of 2" and tables.num_runs(RECORDS) == 4
    assert (tables.wrong(RECORDS, 0.05), tables.wrong(RECORDS, 0.1)) == ("6.0", "10.5")
    assert tables.calibration_error(RECORDS, 128) == "5.0"
    more = dict([run("cr", 128, 1, [[None, None, 30], [50, 5, 60]])])
    listed = [line.split(" | ")[1] for line in tables.promises(RECORDS | more).splitlines() if line.startswith("| CR")]
    assert listed == ["128"], "only the largest m of a task is listed"
    assert tables.calibration_error(RECORDS | more, 128) == "3.5", "tasks count alike"


def test_planted_errors_count_as_found_within_the_first_rows():
    runs = {
        Unit("planted", "trec", 50, 1): {"look": [0, 1, 11, 12], "self_confidence": [3, 12, 20, 290]},
        Unit("planted", "trec", 50, 2): {"look": [0, 1, 2, 3], "self_confidence": [0, 1, 2, 3]},
        Unit("planted", "sst2", 150, 1): {"look": [40, 50, 60, 70], "self_confidence": [0, 50, 60, 70]},
    }
    records = {unit: {"train_rows": 300, "ranks": ranks} for unit, ranks in runs.items()}
    _, _, trec, sst2, mean = tables.planted(records, 12).splitlines()
    assert trec == "| TREC | 2 | 87.5 | 62.5 |" and sst2 == "| SST2 | 1 | 0.0 | 25.0 |"
    assert mean == "| mean |  | 43.8 | 43.8 |"
    assert (tables.num_planted(records), tables.planted_rows(records)) == ("4", "300")


@pytest.mark.parametrize(("target", "count"), [(0.4, 8), (0.6, 20), (0.7, 32), (0.9, float("inf"))])
def test_labels_needed_are_interpolated(target, count):
    assert tables.needed([0.5, 0.7, 0.8], target, [8, 32, 64]) == pytest.approx(count)
