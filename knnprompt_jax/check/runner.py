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
    check,
    construction,
    deterministic_mode,
    environment,
    main_job,
    meshes,
    model_states,
    packed_prompts,
    peers,
    search,
    search_speed,
)
from knnprompt_jax.check import subject as subject_lib
from knnprompt_jax.runs import inputs
from knnprompt_jax.settings import check as settings_lib

PASS = "pass"
FAIL = "FAIL"
NOT_RUN = "not run"
Line = dict[str, Any]
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


def run(settings: settings_lib.CheckSettings) -> dict[str, Any]:
    """Run all checks and return their record, whose `failed` counts the lines that failed.

    Raises:
        UserError: an unknown shape, an output that cannot be written, or processes that cannot be joined.
    """
    started = time.monotonic()
    checks = make_checks(settings)
    _add_cpu()
    inputs.join_processes(settings.distributed)
    parallel.call_in_main(lambda: files.check_writable(pathlib.Path(settings.output), folder=True))
    subject = subject_lib.Subject(settings)
    facts: dict[str, Any] = {}
    tables: dict[str, list[Line]] = {"checks": []}
    for each in checks:
        seconds_left = 60 * settings.minutes - (time.monotonic() - started)
        for finding in _run(each, subject, np.inf if settings.quick else seconds_left):
            if isinstance(finding, check.Facts):
                facts |= finding.values
            elif isinstance(finding, check.Row):
                tables.setdefault(finding.table, []).append(finding.values)
            else:
                tables["checks"].append(_line(each, finding))
    failed = sum(line["result"] == FAIL for line in tables["checks"])
    return {**facts, "seconds": round(time.monotonic() - started, 1), "failed": failed, **tables}


def make_checks(settings: settings_lib.CheckSettings) -> list[check.Check]:
    """Return the checks in their order, correctness first; raise UserError if a shape is unknown."""
    quick = [each for module in _CORRECTNESS for each in module.CHECKS]
    if settings.quick:
        return quick
    speeds = [*construction.make_checks(settings), *search_speed.CHECKS, *peers.make_checks(settings)]
    return [*quick, model_states.OF_TRAINED_MODEL, *speeds]


def render(record: dict[str, Any]) -> str:
    """Return a record as text: single values, the table of checks, and the tables of measurements."""
    lines = []
    for line in record["checks"]:
        told = ": ".join(filter(None, (line["check"], line["compared"])))
        why = f" ({line['reason']})" if line["result"] == NOT_RUN else ""
        numbers = {name: "" if line[name] is None else line[name] for name in ("deviation", "allowed", "result")}
        lines.append({"check": told + why, **numbers})
    return report.render({**record, "checks": lines})


def _add_cpu() -> None:
    """Let JAX use CPUs, where references are computed, even if JAX_PLATFORMS names other devices only."""
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]  # JAX defines options at run time.
    if platforms and "cpu" not in platforms.split(","):
        jax.config.update("jax_platforms", f"{platforms},cpu")


def _run(each: check.Check, subject: subject_lib.Subject, seconds_left: float) -> Iterator[check.Finding]:
    """Yield what a check finds; every process runs the same checks."""
    reason = parallel.call_in_main(lambda: _reason_not_to_run(each, subject, seconds_left))
    if reason:
        yield check.Skipped("", reason)
        return
    progress.note(f"{each.name} …")
    fails = False
    try:
        for finding in each.run(subject):
            fails |= isinstance(finding, check.Comparison) and not finding.passes
            yield finding
    except Exception as error:  # A bug, or whatever a compiler or a driver raises.
        fails = True
        yield check.Failed(f"{type(error).__name__}: {errors.shortened(errors.one_line(error))[:300]}")
    if others := _processes_that_fail(fails):
        yield check.Failed(f"fails in process {errors.join_names(others)}")


def _reason_not_to_run(each: check.Check, subject: subject_lib.Subject, seconds_left: float) -> str:
    """Return why a check does not fit into the time or the memory; "" if it does."""
    if seconds_left <= 0:
        return "no time is left"
    if reason := each.misfit(subject):
        return reason
    seconds = each.seconds(subject)
    return f"it takes about {seconds:.0f} s, and {seconds_left:.0f} s are left" if seconds > seconds_left else ""


def _processes_that_fail(fails: bool) -> list[int]:
    """Return the other processes in which the same check fails."""
    if jax.process_count() == 1:
        return []
    fails_P = np.ravel(multihost_utils.process_allgather(np.array(fails)))
    return [index for index in np.flatnonzero(fails_P).tolist() if index != jax.process_index()]


def _line(each: check.Check, finding: check.Comparison | check.Skipped | check.Failed) -> Line:
    """Return a line of the table of checks."""
    line = {"check": each.name, "compared": finding.compared, "deviation": None, "allowed": None}
    if isinstance(finding, check.Failed):
        return line | {"result": FAIL, "reason": ""}
    if isinstance(finding, check.Skipped):
        return line | {"result": NOT_RUN, "reason": finding.reason}
    deviation = finding.deviation if np.isfinite(finding.deviation) else str(finding.deviation)  # For JSON.
    numbers = {"deviation": deviation, "allowed": finding.allowed}
    return line | numbers | {"result": PASS if finding.passes else FAIL, "reason": finding.reason}
