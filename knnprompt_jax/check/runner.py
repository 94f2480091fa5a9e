"""Run checks in their order within a time, and gather what they find in one record."""

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from knnprompt_jax import errors, files, parallel, progress
from knnprompt_jax.benchmark import report
from knnprompt_jax.check import (
    attention_kernel,
    construction,
    deterministic_mode,
    environment,
    findings,
    main_job,
    meshes,
    model_states,
    packed_prompts,
    peers,
    search,
    search_speed,
)
from knnprompt_jax.check import inputs as inputs_lib
from knnprompt_jax.models import kernel_proof
from knnprompt_jax.settings import check as settings_lib
from knnprompt_jax.study import job_inputs as run_inputs

PASS = "pass"
FAIL = "FAIL"
NOT_RUN = "not run"
Line = dict[str, Any]
Record = dict[str, Any]
_CORRECTNESS = (
    environment,
    model_states,
    attention_kernel,
    packed_prompts,
    deterministic_mode,
    search,
    meshes,
    main_job,
)


def run(settings: settings_lib.CheckSettings, path: pathlib.Path) -> Record:
    """Run all checks and return their record, whose `failed` counts the lines that failed.

    Process 0 writes the record to `path` before each check, with the check's name as `running`, and at the end.

    Raises:
        UserError: an unknown shape, a wrong value of KNNPROMPT_PREFIX_KERNEL, a record that cannot be written, or
            processes that cannot be joined.
    """
    started = time.monotonic()
    checks = make_checks(settings)
    kernel_proof.switch()
    _add_cpu()
    run_inputs.join_processes(settings.distributed)
    parallel.call_in_main(lambda: files.check_writable(path.parent, folder=True))
    inputs = inputs_lib.Inputs(settings)
    facts: Record = {}
    tables: dict[str, list[Line]] = {"checks": []}

    def write(running: str = "") -> Record:
        failed = sum(line["result"] == FAIL for line in tables["checks"])
        current = {"running": running} if running else {}
        record = {**facts, **current, "seconds": round(time.monotonic() - started, 1), "failed": failed, **tables}
        parallel.call_in_main(lambda: report.write_to(path, settings, record))
        return record

    for item in checks:
        write(item.name)
        seconds_left = 60 * settings.minutes - (time.monotonic() - started)
        for finding in _run(item, inputs, np.inf if settings.quick else seconds_left):
            if isinstance(finding, findings.Facts):
                facts |= finding.values
            elif isinstance(finding, findings.Row):
                tables.setdefault(finding.table, []).append(finding.values)
            else:
                tables["checks"].append(_line(item, finding))
    return write()


def make_checks(settings: settings_lib.CheckSettings) -> list[findings.Check]:
    """Return the checks in their order, correctness first; raise UserError if a shape is unknown."""
    quick = [item for module in _CORRECTNESS for item in module.CHECKS]
    if settings.quick:
        return quick
    speeds = [*search_speed.CHECKS, *construction.make_checks(settings), *peers.make_checks(settings)]
    return [*quick, model_states.OF_TRAINED_MODEL, *speeds]


def render(record: Record) -> str:
    """Return a record as text: single values, the table of checks, and the tables of measurements."""
    lines = []
    for line in record["checks"]:
        title = ": ".join(filter(None, (line["check"], line["compared"])))
        reason = "" if line["result"] == PASS or line["deviation"] is not None else f" ({line['reason']})"
        numbers = {name: "" if line[name] is None else line[name] for name in ("deviation", "allowed", "result")}
        lines.append({"check": title + reason, **numbers})
    return report.render({**record, "checks": lines})


def _add_cpu() -> None:
    """Let JAX use CPUs, where references are computed, even if JAX_PLATFORMS names other devices only."""
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]  # JAX defines options at run time.
    if platforms and "cpu" not in platforms.split(","):
        jax.config.update("jax_platforms", f"{platforms},cpu")


def _run(item: findings.Check, inputs: inputs_lib.Inputs, seconds_left: float) -> Iterator[findings.Finding]:
    """Yield what a check finds; every process runs the same checks."""
    obstacle = parallel.call_in_main(lambda: _obstacle(item, inputs, seconds_left))
    if obstacle:
        yield obstacle
        return
    progress.note(f"{item.name} …")
    fails = False
    try:
        for finding in item.run(inputs):
            fails |= isinstance(finding, findings.Failed)
            fails |= isinstance(finding, findings.Comparison) and not finding.passes
            yield finding
    except Exception as error:
        stopped = item.stopped(error)
        fails |= isinstance(stopped, findings.Failed)
        yield stopped
    if failing := _processes_that_fail(fails):
        yield findings.Failed("", f"it fails in process {errors.join_names(failing)}")


def _obstacle(
    item: findings.Check, inputs: inputs_lib.Inputs, seconds_left: float
) -> findings.Skipped | findings.Failed | None:
    """Return why a check does not run: too little time or memory, or an exception of its estimates."""
    if seconds_left <= 0:
        return findings.Skipped("", "no time is left")
    try:
        if reason := item.misfit():
            return findings.Skipped("", reason)
        seconds = item.seconds(inputs)
    except Exception as error:  # For example a library that does not load.
        return item.stopped(error)
    if seconds > seconds_left:
        return findings.Skipped("", f"it takes about {seconds:.0f} s, and {seconds_left:.0f} s are left")
    return None


def _processes_that_fail(fails: bool) -> list[int]:
    """Return the other processes in which the same check fails."""
    if jax.process_count() == 1:
        return []
    fails_P = np.ravel(multihost_utils.process_allgather(np.array(fails)))
    return [index for index in np.flatnonzero(fails_P).tolist() if index != jax.process_index()]


def _line(item: findings.Check, finding: findings.Comparison | findings.Skipped | findings.Failed) -> Line:
    """Return a line of the table of checks."""
    line = {"check": item.name, "compared": finding.compared, "deviation": None, "allowed": None}
    line |= {"result": NOT_RUN, "reason": finding.reason}
    if isinstance(finding, findings.Failed):
        return line | {"result": FAIL} | ({"traceback": finding.traceback} if finding.traceback else {})
    if isinstance(finding, findings.Skipped):
        return line
    result = PASS if finding.passes else FAIL
    return line | {"deviation": finding.deviation, "allowed": finding.allowed, "result": result}
