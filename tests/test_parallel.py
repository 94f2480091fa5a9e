"""Meshes and processes do not change results. Every test runs programs of its own on forced CPU devices."""

import json
import os
import shlex
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import knnprompt_jax as kp
from knnprompt_jax.common import errors, files, parallel
from tests import processes, shell
from tests.processes import predict_in_small_batches

ONE_OF_EACH = {
    "refusals": [],
    "opt": ["opt 1 1", "opt 2 4"],
    "llama over 2": ["llama over 2 1 1", "llama over 2 1 8"],
    "stores": [f"{kind} {mesh}" for kind in ("factored", "dense") for mesh in ("8x1", "2x4", "1x2")],
    "likelihoods": ["likelihoods"],
    "training": ["training"],
}
MORE_MODELS = {
    "gpt2": ["gpt2 1 1", "gpt2 8 1", "gpt2 2 4"],
    "phi over 2": ["phi over 2 1 1", "phi over 2 2 4", "phi over 2 1 8"],
    **{name: [f"{name} 1 1", f"{name} 2 4"] for name in ("olmo2 over 4", "gemma3 over 2")},
    "deterministic": ["deterministic"],
}


@pytest.mark.parametrize("checked", [ONE_OF_EACH, pytest.param(MORE_MODELS, marks=pytest.mark.long)])
def test_meshes_of_eight_devices(checked):
    """Weights, states and stores have their intended shardings.

    States, predictions and saved stores equal those of one device.
    """
    printed, _ = processes.run("tests/parallel/meshes.py", *checked, devices=8)
    assert printed.splitlines() == [line for lines in checked.values() for line in lines]


@pytest.mark.long
def test_four_killed_processes_build_one_store(tmp_path, monkeypatch):
    """Four processes × two devices, killed and started again. Keys differ from one device's only by rounding."""
    monkeypatch.setenv("KNNPROMPT_CACHE", str(tmp_path / "cache"))
    command = ["experiments/fit.py", "--task=demo", "--model=tiny", "--experts=knn", "--shots=6", "--demo_shots=2"]
    processes.run(*command, "--cache_gb=0", f"--classifier={tmp_path}/one", devices=1)
    for is_killed in (True, False):
        joined = [*command, "--mesh.model=2", f"--classifier={tmp_path}/four", *distributed_options(4)]
        four = [start(2, *joined, f"--distributed.process_id={number}") for number in range(4)]
        while is_killed and not list((tmp_path / "cache" / "states").glob("*.npz")) and four[0].poll() is None:
            time.sleep(0.01)
        for process in four if is_killed else ():
            process.kill()
        outputs = [process.communicate() for process in four]
    assert [process.returncode for process in four] == [0] * 4, outputs
    one = kp.load(tmp_path / "one").fitted_
    four = kp.load(tmp_path / "four").fitted_
    assert one.content == four.content
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), one.states, four.states)


def test_two_processes_predict_what_one_does(tmp_path):
    """Two processes × two devices; the first alone prints and writes."""
    command = ["experiments/compare.py", "--model=tiny", "--shots=3", "--demo_shots=1", "--seeds=1"]
    joined = ["--mesh.model=2", f"--output={tmp_path}/two", *distributed_options()]
    two = [start(2, *command, *joined, f"--distributed.process_id={process}") for process in range(2)]
    alone = shell.run(shlex.join(["python", *command, f"--output={tmp_path}/one"]))
    outputs = [process.communicate() for process in two]
    assert [process.returncode for process in two] == [0, 0], outputs
    # Gloo writes lines of its own to standard output, from several threads at once.
    printed = [("kNN Prompting" in output, "records:" in output) for output in (alone, *(out for out, _ in outputs))]
    assert printed == [(True, True), (True, True), (False, False)]
    written = {folder: sorted((tmp_path / folder).glob("*.json")) for folder in ("one", "two")}
    records = {folder: [json.loads(path.read_text()) for path in paths] for folder, paths in written.items()}
    for folder, devices in (("one", "1"), ("two", "4")):
        assert [record["method"] for record in records[folder]] == ["icl", "knn"]
        assert all(record["environment"]["devices"] == devices for record in records[folder])
    for ours, theirs in zip(records["one"], records["two"], strict=True):
        assert ours["predicted"] == theirs["predicted"] and len(set(ours["predicted"])) > 1


def test_two_processes_label_what_one_does(demo_classifier, tmp_path):
    """The first process alone has the input and writes."""
    demo_classifier.save(tmp_path / "saved")
    texts = [f"line {number**2} of many" for number in range(307)]
    (tmp_path / "rows.txt").write_text("\n".join(texts))
    options = [f"--classifier={tmp_path}/saved", f"--output={tmp_path}/out.jsonl"]
    joined = distributed_options()
    options = [*predict_in_small_batches(600), *options, *joined]
    two = [
        start(1, *options, f"--input={path}", f"--distributed.process_id={number}")
        for number, path in enumerate((tmp_path / "rows.txt", "nowhere.txt"))
    ]
    outputs = [process.communicate() for process in two]
    assert [process.returncode for process in two] == [0, 0], outputs
    assert "307 rows, " in outputs[0][0] and "rows/s" not in outputs[1][0]
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [record["row"] for record in records] == list(range(307))
    assert [record["label"] for record in records] == demo_classifier.predict(texts).tolist()


@pytest.mark.parametrize(
    ("victim", "state"),
    [(0, "idle"), (1, "busy"), *(pytest.param(*case, marks=pytest.mark.long) for case in ((0, "busy"), (1, "idle")))],
)
def test_a_lost_process_ends_the_others(victim, state):
    """Survivors must not wait for a lost process: they exit within a minute and say why.

    A collective operation that fails ends in our message. One that hangs, about one in twenty on a loaded machine, is
    aborted by JAX when heartbeats stop, as is a process outside such operations.
    """
    address, *_ = (option.split("=")[1] for option in distributed_options())
    processes = [start(2, "tests/parallel/endless.py", address, str(process), state) for process in range(2)]
    survivor = 1 - victim
    try:
        for process in processes:
            assert any("running" in line for line in process.stdout), process.stderr.read()
        processes[victim].kill()
        _, message = processes[survivor].communicate(timeout=60)
        assert processes[survivor].returncode and "Traceback" not in message
        if state == "busy" and processes[survivor].returncode == 2:
            assert message.splitlines()[-1].startswith(f"error: process {survivor} of 2: another process died or ")
        else:
            assert "another task died" in message
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_the_error_of_a_lost_process_ends_in_one_line(monkeypatch, capsys):
    """Other errors keep their traceback."""
    tracebacks = []
    statuses = []
    monkeypatch.setattr(sys, "excepthook", lambda *raised: tracebacks.append(raised[1]))
    monkeypatch.setattr(jax.distributed, "initialize", lambda **options: None)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(os, "_exit", statuses.append)
    parallel.start(auto=True, address="", num_processes=0, process_id=0)
    others = [jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"), OSError("Connection closed by peer")]
    for error in others:
        sys.excepthook(type(error), error, None)
    assert (tracebacks, statuses, capsys.readouterr().err) == (others, [], "")
    for text in ("Gloo all-reduce failed: Connection closed\n by \x1b[31mpeer", "NCCL operation failed: " + "x " * 400):
        sys.excepthook(jax.errors.JaxRuntimeError, jax.errors.JaxRuntimeError(text), None)
        reported = capsys.readouterr().err
        assert reported.startswith("error: process 0 of 2: another process died") and text[:20] in reported
        assert reported.count("\n") == 1 and reported.isascii() and "\x1b" not in reported and len(reported) < 500
    assert (len(tracebacks), statuses) == (2, [2, 2])


SLURM = {"SLURM_NTASKS": "2", "SLURM_STEP_NUM_NODES": "2"}


@pytest.mark.parametrize(
    ("auto", "environment", "devices"),
    [
        (True, {}, None),
        (True, SLURM, []),
        (True, SLURM | {"OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, None),  # Slurm counts the daemons of mpirun.
        (True, {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, []),
        (False, SLURM | {"SLURM_NTASKS": "16"}, []),
        (False, {"JAX_LOCAL_DEVICE_IDS": "3"}, None),
    ],
)
def test_a_process_alone_on_its_host_has_all_devices(auto, environment, devices, monkeypatch):
    """JAX would give each task of a scheduler one device. An empty list means all, None leaves the choice to JAX."""
    joined = {}
    for name in ("SLURM_NTASKS", "SLURM_STEP_NUM_NODES", "OMPI_COMM_WORLD_LOCAL_SIZE", "JAX_LOCAL_DEVICE_IDS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(jax.distributed, "initialize", joined.update)
    parallel.start(auto=auto, address="" if auto else "host:1", num_processes=2, process_id=0)
    assert joined.get("local_device_ids") == devices


def test_an_error_of_the_first_process_ends_all(tmp_path):
    address, *_ = (option.split("=")[1] for option in distributed_options())
    with files.lock(tmp_path / "held"):
        arguments = ["tests/parallel/refused.py", address, str(tmp_path / "held")]
        processes = [start(1, *arguments, str(process)) for process in range(2)]
        outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    for output, _ in outputs:
        assert f"{tmp_path}/held: another process is writing to it" in output
        assert "within the free one" in output and "0 for all" in output and "held.nowhere'" in output


def start(devices: int, program: str, *arguments: str) -> subprocess.Popen:
    return processes.start(program, *arguments, devices=devices)


def distributed_options(processes: int = 2) -> list[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [f"--distributed.address=127.0.0.1:{port}", f"--distributed.num_processes={processes}"]


def test_a_platform_that_this_machine_lacks_is_named(monkeypatch):
    """JAX alone would run on the second platform without a word."""
    monkeypatch.setenv("JAX_PLATFORMS", "rocm,cpu")
    with pytest.raises(errors.UserError, match="^JAX_PLATFORMS=rocm,cpu: no such devices; unset this"):
        parallel.is_main()
