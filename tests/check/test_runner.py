"""The record of `knnprompt check`: its lines, its time, its exit status, and a quick run of several processes."""

import json
import pathlib
import types

import jax
import pytest

from knnprompt_jax import errors, options
from knnprompt_jax.check import construction, environment, findings, peers, runner, search_speed
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.settings import check as settings_lib
from tests import shell, test_parallel


def found(*findings):
    return lambda inputs: iter(findings)


FACTS = findings.Facts({"jax": "1.2"})
RIGHT = findings.Comparison("a against b, nats", 0.25, 0.5, "rounding")
WRONG = findings.Comparison("c against d", float("nan"), 0, "equal bits")
ROW = findings.Row("search_speed", {"store": "dense", "queries/s": float("inf")})


@pytest.fixture
def only(monkeypatch):
    """Return a function that replaces all checks."""

    def only(*checks):
        monkeypatch.setattr(runner, "make_checks", lambda settings: checks)

    return only


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the checks and returns the record."""
    return lambda **values: runner.run(settings_lib.CheckSettings(**values), tmp_path / "record.json")


def test_a_record_has_facts_lines_and_tables(only, run, tmp_path):
    only(
        findings.Check("one", found(FACTS, RIGHT, WRONG)),
        findings.Check("two", found(ROW, findings.Skipped("e", "no GPU"))),
    )
    record = run()
    assert (record["jax"], record["failed"], record["search_speed"]) == ("1.2", 1, [ROW.values])
    lines = [(line["check"], line["compared"], line["result"]) for line in record["checks"]]
    assert lines == [
        ("one", "a against b, nats", "pass"),
        ("one", "c against d", "FAIL"),
        ("two", "e", "not run"),
    ]
    text = runner.render(record)
    assert "one: a against b, nats       0.25      0.5     pass" in text
    assert "two: e (no GPU)" in text and "search" not in text
    saved = json.loads((tmp_path / "record.json").read_text(), parse_constant=pytest.fail)
    assert [line["deviation"] for line in saved["checks"]] == [0.25, "nan", None]
    assert saved["search_speed"] == [{"store": "dense", "queries/s": "inf"}]


def test_what_does_not_fit_is_listed_as_not_run(only, run):
    never = found(findings.Failed("", "ran"))
    only(
        findings.Check("long", never, seconds=lambda inputs: 61.0),
        findings.Check("large", never, misfit=lambda: "it needs 9 GiB, and 8 GiB are free"),
        findings.Check("short", found(RIGHT), seconds=lambda inputs: 50.0),
    )
    lines = run(minutes=1)["checks"]
    assert [line["result"] for line in lines] == ["not run", "not run", "pass"]
    assert lines[0]["reason"].startswith("it takes about 61 s, and ") and lines[1]["reason"].startswith(
        "it needs 9 GiB"
    )


def test_a_quick_run_leaves_speeds_out():
    names = {quick: [each.name for each in runner.make_checks(make_settings(quick))] for quick in (True, False)}
    assert names[False][: len(names[True])] == names[True]
    assert (
        names[False][len(names[True]) :][0] == "states" and "peers: gpt2, prompts with TREC's lengths" in names[False]
    )


def make_settings(quick):
    return settings_lib.CheckSettings(quick=True) if quick else settings_lib.CheckSettings(shapes=("gpt2",))


@pytest.mark.parametrize(("finding", "status"), [(RIGHT, 0), (WRONG, 1)])
def test_the_exit_status(only, finding, status, tmp_path):
    only(findings.Check("one", found(finding)))
    command = f"python experiments/check.py --output={tmp_path}"
    if status:
        with pytest.raises(AssertionError, match="FAIL"):
            shell.run(command)
    else:
        assert "record: " in shell.run(command)
    [path] = tmp_path.glob("check-*.json")
    record = json.loads(path.read_text())
    assert record["failed"] == status and record["settings"]["minutes"] == 8


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shapes": ("gpt5",)}, "--shapes=gpt5: choose from "),
        ({"minutes": 0}, "minutes=0: give a number from 0.1 to"),
        ({"quick": True, "minutes": 3.0}, "--minutes: has no effect with --quick; leave it out"),
        ({"quick": True, "shapes": ()}, "--shapes: has no effect with --quick; leave it out"),
    ],
)
def test_mistakes(values, message):
    with pytest.raises(errors.UserError, match=message):
        runner.run(options.from_config(settings_lib.CheckSettings, values), pathlib.Path("missing/record.json"))


def test_a_wrong_switch_of_the_kernel_is_refused_at_the_start(only, run, monkeypatch):
    only(findings.Check("one", found(RIGHT)))
    monkeypatch.setenv("KNNPROMPT_PREFIX_KERNEL", "of")
    with pytest.raises(errors.UserError, match="KNNPROMPT_PREFIX_KERNEL=of: choose from on, off, auto"):
        run()


def test_a_crash_leaves_the_record_of_earlier_checks(only, run, tmp_path):
    """The process dies in the second check; the file names that check."""

    def crash(inputs):
        raise SystemExit

    only(findings.Check("one", found(RIGHT)), findings.Check("two", crash), findings.Check("three", found(RIGHT)))
    with pytest.raises(SystemExit):
        run()
    record = json.loads((tmp_path / "record.json").read_text())
    assert (record["running"], [line["check"] for line in record["checks"]]) == ("two", ["one"])


@pytest.mark.parametrize(("is_measurement", "result"), [(True, "not run"), (False, "FAIL")])
def test_a_measurement_that_does_not_fit_into_memory_is_not_run(only, run, is_measurement, result):
    def overflow(inputs):
        yield ROW
        raise RuntimeError("CUDA out of memory")

    only(findings.Check("one", overflow, is_measurement=is_measurement))
    record = run()
    assert [(line["result"], line["reason"]) for line in record["checks"]] == [
        (result, "RuntimeError: CUDA out of memory")
    ]
    assert record["search_speed"] == [ROW.values]


def test_the_memory_of_a_cpu(monkeypatch, tmp_path):
    """It is what the system has available, or what is left of the limit of a container."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemFree: 1 kB\nMemAvailable:  3072 kB\n")
    monkeypatch.setattr(environment, "_MEMINFO", meminfo)
    monkeypatch.setattr(environment, "_CGROUP", tmp_path)
    assert environment.memory_bytes() == 3 * 2**20
    for name, content in (("memory.max", "2097152\n"), ("memory.current", "1048576\n")):
        (tmp_path / name).write_text(content)
    assert environment.memory_bytes() == 2**20
    assert environment.misfit(2**30) == "it needs 1.0 GiB on a device, and the limit is 0.0 GiB"
    (tmp_path / "memory.max").write_text("max\n")
    assert environment.memory_bytes() == 3 * 2**20


@pytest.mark.parametrize("estimate", ["seconds", "misfit"])
def test_an_estimate_that_raises_fails_its_check_only(only, run, estimate):
    def overflow(*inputs):
        raise OSError("torch cannot\nbe loaded")

    only(findings.Check("one", found(RIGHT), **{estimate: overflow}), findings.Check("two", found(RIGHT)))
    first, second = run()["checks"]
    assert (first["result"], first["reason"]) == ("FAIL", "OSError: torch cannot be loaded")
    assert "in overflow" in first["traceback"] and second["result"] == "pass"


def test_speeds_are_measured(monkeypatch):
    """Construction, search and peers run with small sizes; no test looks at speeds."""
    from knnprompt_jax.benchmark import timing

    monkeypatch.setattr(timing, "_SIDE_ON_CPU", 64)
    monkeypatch.setattr(construction, "_ANCHORS_ON_CPUS", 23)
    inputs = inputs_lib.Inputs(settings_lib.CheckSettings(shapes=("gpt2",)))
    vars(inputs)["bytes_per_second"] = 1e9
    of_trec, of_mr = construction.make_checks(settings_lib.CheckSettings(shapes=("EleutherAI/pythia-70m",)))
    assert of_trec.name == "construction: EleutherAI/pythia-70m, prompts with TREC's lengths"
    assert not of_mr.misfit() and of_trec.seconds(inputs) > 15
    [row] = of_mr.run(inputs)
    assert row.values["kernel"] is False and row.values["anchors/s"] > 0
    [large, _] = construction.make_checks(settings_lib.CheckSettings(shapes=("facebook/opt-66b",)))
    assert "and the limit is" in large.misfit()
    [row] = search_speed.run(inputs, "dense", 61, 5)
    assert row.values["queries/s"] > 0 and row.values["share_of_bound"] > 0
    assert "and the limit is" in search_speed._misfit("factored", 10**9)
    [check_of_peers, _] = peers.make_checks(settings_lib.CheckSettings(shapes=("gpt2", "gpt2-xl")))
    assert check_of_peers.name.startswith("peers: gpt2, ") and check_of_peers.seconds(inputs) > 60


def test_each_accelerator_reads_as_much_as_one_would(monkeypatch):
    """Speeds of partly filled steps would say nothing about a machine of several devices."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(construction, "_COMPILING_ON_ACCELERATORS", 0.0)
    monkeypatch.setattr(construction, "_ANCHORS_PER_ACCELERATOR", 500)
    inputs = inputs_lib.Inputs(settings_lib.CheckSettings())
    vars(inputs)["operations_per_second"] = {"float32": 1e9}
    [_, of_mr] = construction.make_checks(settings_lib.CheckSettings(shapes=("EleutherAI/pythia-70m",)))
    seconds = {}
    for num_devices in (1, 8):
        monkeypatch.setattr(jax, "device_count", lambda count=num_devices: count)
        seconds[num_devices] = of_mr.seconds(inputs)
    assert seconds[8] == pytest.approx(seconds[1], rel=0.1)


def test_a_quick_run_of_two_processes_with_eight_devices(tmp_path):
    """The first process writes and prints; both end with status 0."""
    joined = [
        "tests/parallel/check_together.py",
        "--quick",
        f"--output={tmp_path}",
        *test_parallel.distributed_options(),
    ]
    both = [test_parallel.start(4, *joined, f"--distributed.process_id={process}") for process in range(2)]
    outputs = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert ["record: " in out for out, _ in outputs] == [True, False]
    [path] = tmp_path.glob("check-*.json")
    record = json.loads(path.read_text())
    lines = record["checks"]
    assert (record["processes"], record["failed"]) == (2, 0)
    assert {line["result"] for line in lines} == {"pass"}
    splits = [line["compared"][:18] for line in lines if line["check"] == "meshes"]
    assert splits == ["8 data × 1 model, ", "4 data × 2 model, ", "2 data × 4 model, "]
    assert any("over 8 data shards" in line["compared"] for line in lines)


@pytest.mark.parametrize(("given", "used"), [("cuda", "cuda,cpu"), ("cpu,tpu", "cpu,tpu"), ("", ""), (None, None)])
def test_references_have_a_cpu(monkeypatch, given, used):
    """JAX_PLATFORMS may name accelerators only."""
    config = types.SimpleNamespace(jax_platforms=given)
    config.update = lambda name, value: setattr(config, name, value)
    monkeypatch.setattr(runner, "jax", types.SimpleNamespace(config=config))
    runner._add_cpu()
    assert config.jax_platforms == used
