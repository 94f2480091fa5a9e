"""A plan as text for the terminal and as a JSON file."""

import dataclasses
import pathlib

from knnprompt_jax import tables
from knnprompt_jax.planning import job, records, targets

_HEADER = ("data × model", "fits", "weights", "prefix", "working", "store", "peak")
_TIMES = ("ms/step", "MiB sent/step", "anchors/s", "job s")


def render(plan: job.JobPlan) -> str:
    """Return the table of meshes, the recommended mesh and the assumptions."""
    settings, device, work = plan.settings, plan.target.device, plan.workload
    head = (
        f"ESTIMATED, NOTHING WAS RUN: {plan.model}, {settings.dtype}, on {plan.target.size} × {settings.topology.split(':')[0]}"
        f" ({settings.topology})\ntask {settings.task}: {plan.rows[0].anchors:,} anchors after a prefix of {len(work.largest.prefix_P):,} "
        f"tokens, {settings.queries:,} queries; tokens counted by the tokenizer of {work.tokenizer_name}"
    )
    table = tables.render([*_HEADER, *(_TIMES if device.peak else ())], [_row(row) for row in plan.rows])
    errors = [f"{row.data} × {row.model}: {row.error[:300]}" for row in plan.rows if row.error]
    best = plan.recommended
    advice = f"Recommended: none of these meshes: {plan.model} needs more memory than {plan.target.name} has."
    if best:
        advice = f"Recommended: mesh.model={best.model} (mesh.data={best.data}), the smallest that fits."
    source = "XLA's memory analysis" if any(row.programs for row in plan.rows) else "arithmetic, right to a tenth"
    notes = [f"GiB on each device; working memory by {source}."]
    if device.peak:
        notes.append(
            "Times are a roofline, a lower bound: the longest of operations at "
            f"{device.peak / 1e12:g} TFLOP/s (float32: {device.peak_float32 / 1e12:.3g}), weights and prefix at "
            f"{device.bandwidth / 1e12:g} TB/s, and all-reduces at {device.links / 1e9:g} GB/s. Real steps take longer."
        )
    return "\n\n".join([head, table, " ".join(notes), *errors, advice])


def write(folder: pathlib.Path, plan: job.JobPlan) -> pathlib.Path:
    """Write the plan as JSON under a new name, and return its path."""
    environment = records.environment()
    rows = [{**dataclasses.asdict(row), "fits": row.fits, "job_seconds": row.job_seconds} for row in plan.rows]
    settings, tokenizer = plan.settings.to_dict(), plan.workload.tokenizer_name
    record = {"estimated": True, **environment, "settings": settings, "tokenizer": tokenizer, "rows": rows}
    return records.write(folder, "plan", environment["date"], record)


def _row(row: job.MeshPlan) -> list[str]:
    fits = "yes" if row.fits else "out of memory" if row.is_out_of_memory else "no program"
    sizes = [row.need.weights, row.need.prefix, row.working, row.store, row.peak]
    cells = [f"{row.data} × {row.model}", fits, *(f"{size / targets.GIB:.2f}" for size in sizes)]
    if row.step_seconds is None:
        return cells
    cells += [f"{1000 * row.step_seconds:,.0f}", f"{row.step.collective_bytes / 2**20:,.0f}"]
    return [*cells, f"{row.anchors_per_second:,.0f}", f"{row.job_seconds:,.1f}"]
