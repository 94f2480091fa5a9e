"""A plan as text for the terminal and as a JSON file. Nothing in it was run, and it says so."""

import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import sys
from typing import Any

from knnprompt_jax import files, tables
from knnprompt_jax.lm import programs as lm_programs
from knnprompt_jax.planning import hlo, job, programs, targets

_PACKAGES = ("jax", "jaxlib", "libtpu")


def render(plan: job.JobPlan) -> str:
    """The table of meshes, of what the recommended one's time is made, and what is assumed."""
    settings, subject = plan.settings, plan.subject
    counted = f"tokens as {subject.tokens_of} counts them"
    head = (
        f"ESTIMATED, NOTHING WAS RUN: {subject.name}, {settings.dtype}, on {plan.target.size} × {settings.topology.split(':')[0]}"
        f" ({settings.topology})\ntask {settings.task}: {plan.rows[0].anchors:,} anchors after a prefix of {plan.prefix_tokens:,} "
        f"tokens, {settings.queries:,} queries; {counted}"
    )
    rows = [_row(row) for row in plan.rows]
    header = [
        "data × model",
        "fits",
        "weights",
        "prefix",
        "working",
        "store",
        "peak",
        "ms/step",
        "of peak",
        "anchors/s",
        "job s",
    ]
    parts = [head, tables.render(header, rows), "GiB on each device.", *_errors(plan), _recommendation(plan)]
    if plan.recommended and plan.recommended.figures:
        parts += [_time(plan.recommended), _collectives(plan.recommended), _assumptions(plan)]
    return "\n\n".join(part for part in parts if part)


def write(folder: pathlib.Path, plan: job.JobPlan) -> pathlib.Path:
    """Writes all figures, whole or not at all, under a name that no other has; returns where."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    path = folder / f"plan-{now.replace(':', '').replace('+0000', 'Z')}-{os.getpid()}.json"
    with files.new_file(path) as draft:
        draft.write_text(json.dumps(_record(plan, now), indent=1) + "\n", encoding="utf-8")
    return path


def _record(plan: job.JobPlan, now: str) -> dict[str, Any]:
    installed = {distribution.name for distribution in importlib.metadata.distributions()}
    return {
        "estimated": True,
        "date": now,
        "command": " ".join(sys.argv),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES if name in installed},
        "settings": plan.settings.to_dict(),
        "tokens_of": plan.subject.tokens_of,
        "rows": [{**dataclasses.asdict(row), "fits": row.fits, "job_seconds": row.job_seconds} for row in plan.rows],
    }


def _row(row: job.MeshPlan) -> list[str]:
    need = row.pass_memory
    sizes = [need.weights, need.prefix, row.working, row.store, row.peak]
    step, share, rate, seconds = row.step_seconds, row.share_of_peak, row.anchors_per_second, row.job_seconds
    return [
        f"{row.data} × {row.model}",
        "yes" if row.fits else "out of memory" if row.is_out_of_memory else "no program",
        *(f"{size / targets.GIB:.2f}" for size in sizes),
        "–" if step is None else f"{1000 * step:,.0f}",
        "–" if share is None else f"{100 * share:.0f} %",
        "–" if rate is None else f"{rate:,.0f}",
        "–" if seconds is None else f"{seconds:,.1f}",
    ]


def _errors(plan: job.JobPlan) -> list[str]:
    return [f"{row.data} × {row.model}: {row.error[:300]}" for row in plan.rows if row.error]


def _recommendation(plan: job.JobPlan) -> str:
    row = plan.recommended
    if not row:
        return f"Recommended: none of these meshes; {plan.subject.name} needs more memory than {plan.target.name} has."
    return f"Recommended: mesh.model={row.model} (mesh.data={row.data}), the smallest that fits."


def _time(row: job.MeshPlan) -> str:
    """A step's time by part, where the compiler estimates any."""
    step = row.step_seconds
    if step is None:
        return ""
    cycles = row.figures[programs.SUFFIXES].cycles
    per_step = {part: count / row.device.clock / lm_programs.STEPS_PER_CALL for part, count in cycles.items()}
    per_step["collectives"] = row.collective_seconds(programs.SUFFIXES) / lm_programs.STEPS_PER_CALL
    shown = sorted(per_step.items(), key=lambda item: -item[1])
    rows = [[part, f"{1000 * seconds:,.2f}", f"{100 * seconds / step:.1f} %"] for part, seconds in shown if seconds]
    return tables.render(["a step's time, mesh.model=" + str(row.model), "ms", "share"], rows)


def _collectives(row: job.MeshPlan) -> str:
    found = [
        [
            name,
            each.kind,
            " and ".join(each.axes) or "none",
            f"{each.devices}",
            f"{each.times:,}",
            f"{each.nbytes / 2**20:,.2f}",
        ]
        for name, figures in row.figures.items()
        for each in (hlo.Collective(**fields) for fields in figures.collectives)
    ]
    if not found:
        return "No collectives."
    return tables.render(["collectives of a call of", "kind", "over", "devices", "times", "MiB each"], found)


def _assumptions(plan: job.JobPlan) -> str:
    device = plan.target.device
    if not device.clock:
        return "This compiler reports memory, and no time."
    return (
        f"Assumed: the compiler's cycles at {device.clock / 1e9:g} GHz; collectives on top of them, none overlapped, in a ring at "
        f"{device.bandwidth / 1e9:g} GB/s; all steps full; a host that is never late; 'of peak' is of {device.peak / 1e12:g} "
        "TFLOP/s in bfloat16. Loading and compiling are not in it."
    )
