"""The record of `knnprompt check`: its lines, its exit status, and a quick run of several processes."""

import json

import pytest

from knnprompt_jax.cli import command_settings as settings_lib
from knnprompt_jax.common import errors
from knnprompt_jax.devices import check_runner, checks, device_report, model_checks
from knnprompt_jax.models import hub
from tests import shell, test_parallel

RIGHT = checks.Line("a against b, nats", 0.25, 0.5, checks.PASS)
WRONG = checks.compare("c against d", 0, lambda: float("nan"))
ROW = {"model": "gpt2", "anchors_per_second": 7.5}


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a function that runs checks, each given by its findings, and returns the record."""

    def run(*findings, **values):
        made = {name: lambda inputs, found=found: iter(found) for name, found in findings}
        monkeypatch.setattr(check_runner, "CORRECTNESS", made)
        return check_runner.run(settings_lib.CheckSettings(quick=True, **values), tmp_path / "record.json")

    return run


def test_a_record_has_lines_and_speeds(run, tmp_path):
    record = run(("one", [RIGHT, WRONG]), ("two", [ROW, checks.skipped("e", "no GPU")]))
    assert (record["failed"], record["speeds"]) == (1, [ROW])
    lines = [(line["check"], line["result"]) for line in record["checks"]]
    assert lines == [("one: a against b, nats", "pass"), ("one: c against d", "FAIL"), ("two: e", "not run")]
    assert "one: a against b, nats       0.25      0.5     pass" in device_report.render(record)
    saved = json.loads((tmp_path / "record.json").read_text(), parse_constant=pytest.fail)
    assert [line["deviation"] for line in saved["checks"]] == [0.25, "nan", ""]


def test_a_failure_gives_another_exit_status(monkeypatch, tmp_path):
    """A quick run of two processes, below, has status 0."""
    monkeypatch.setattr(check_runner, "CORRECTNESS", {"one": lambda inputs: iter([WRONG])})
    with pytest.raises(AssertionError, match="FAIL"):
        shell.run(f"python experiments/check.py --shapes= --output={tmp_path}")
    [path] = tmp_path.glob("check-*.json")
    assert json.loads(path.read_text())["failed"] == 1


def test_a_crash_leaves_the_record_of_earlier_checks(monkeypatch, run, tmp_path):
    """The process dies in the second check; the file names that check."""

    def crash():
        raise SystemExit
        yield

    with pytest.raises(SystemExit):
        run(("one", [RIGHT]), ("two", crash()), ("three", [RIGHT]))
    record = json.loads((tmp_path / "record.json").read_text())
    assert (record["running"], [line["check"] for line in record["checks"]]) == ("two", ["one: a against b, nats"])


def test_the_named_model_is_checked(monkeypatch, tmp_path):
    """Its limits are wider than the tiny model's, whose folder it is here; a missing model is refused at once."""
    names = []

    def check(inputs):
        names.append(inputs.model(inputs.device).name)
        return model_checks.check_packing(inputs)

    monkeypatch.setattr(check_runner, "CORRECTNESS", {"packing": check})
    folder = str(hub.resolve("tiny"))
    settings = settings_lib.CheckSettings(quick=True, model=folder)
    lines = check_runner.run(settings, tmp_path / "record.json")["checks"]
    assert names == [folder]
    assert [(line["result"], line["allowed"]) for line in lines] == [("pass", 2e-3)] * 2
    assert all(line["deviation"] <= 2e-4 for line in lines), "the tiny model's limit"
    with pytest.raises(errors.UserError, match="nowhere"):
        check_runner.run(settings_lib.CheckSettings(model="./nowhere"), tmp_path / "record.json")


@pytest.mark.parametrize(("name", "result"), [("speed of gpt2", "not run"), ("search", "FAIL")])
def test_a_measurement_that_does_not_fit_into_memory_is_not_run(name, result):
    def overflow(inputs):
        yield ROW
        raise RuntimeError("CUDA out of memory")

    row, line = check_runner._run(name, overflow, checks.Inputs())
    assert row == ROW and (line.result, line.reason) == (result, "RuntimeError: CUDA out of memory")


def test_a_quick_run_of_two_processes_with_four_devices(tmp_path):
    """The first process writes and prints; both end with status 0."""
    joined = [
        "tests/parallel/check_together.py",
        "--quick",
        f"--output={tmp_path}",
        *test_parallel.distributed_options(),
    ]
    both = [test_parallel.start(2, *joined, f"--distributed.process_id={process}") for process in range(2)]
    outputs = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert ["record: " in out for out, _ in outputs] == [True, False]
    [path] = tmp_path.glob("check-*.json")
    record = json.loads(path.read_text())
    lines = record["checks"]
    assert (record["processes"], record["failed"]) == (2, 0)
    assert {line["result"] for line in lines} == {"pass"}
    assert any("meshes: 2 data × 2 model" in line["check"] for line in lines)
