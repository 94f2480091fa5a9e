"""What is left to run of grids: passes, and the records that are there or equal to others."""

import dataclasses
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from knnprompt_jax.methods import method
from knnprompt_jax.paper import experiments
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import passes as passes_lib
from knnprompt_jax.runs import records


@dataclasses.dataclass(frozen=True)
class Plan:
    """The passes of this shard that are still to do, model by model.

    Attributes:
      passes: what is to be read, each run once.
      equals: for the name of a run's record, the drafts of records that are equal to it but for their table and cell.
      copies: records that are there, each with the draft of an equal one that is not.
      whole: all passes of the shard, done or not.
      done: the names of records that are there.
      told: what is planned, in a line.
    """

    passes: tuple[passes_lib.Pass, ...]
    equals: Mapping[str, Sequence[records.Record]]
    copies: Sequence[tuple[records.Record, records.Record]]
    whole: Sequence[passes_lib.Pass]
    done: Collection[str]
    told: str


def left(
    shard: Sequence[passes_lib.Pass], output: pathlib.Path, total: int, grids: Sequence[settings_lib.GridSettings]
) -> Plan:
    """What is left of a shard's passes, equal runs put together."""
    done: dict[str, records.Record] = {}
    drafts = [run.record for each in shard for run in each.runs]
    for grid in grids:
        own = [draft for draft in drafts if draft.experiment == grid.experiment]
        done |= records.finished(output / grid.experiment, own)
    passes, equals, copies = [], {}, []
    for each in shard:
        runs = []
        for first, *others in _equal(each.runs):
            alike = [first, *others]
            there = next((done[run.record.name] for run in alike if run.record.name in done), None)
            missing = [run.record for run in alike if run.record.name not in done]
            if there:
                copies += [(there, draft) for draft in missing]
            else:
                runs.append(first)
                equals[first.record.name] = missing[1:]
        if runs:
            passes.append(dataclasses.replace(each, runs=tuple(runs)))
    elsewhere = f" and {total - len(drafts)} are other shards'" if total > len(drafts) else ""
    names = ", ".join(grid.experiment for grid in grids)
    told = f"{names}: {total} records, of which {len(done)} are there already{elsewhere}"
    return Plan(tuple(passes), equals, copies, shard, set(done), told)


def _equal(runs: Sequence[passes_lib.Run]) -> list[list[passes_lib.Run]]:
    """The runs of a pass, those together that differ in nothing but their table and cell; a case study stays on its own."""
    groups: dict[Any, list[passes_lib.Run]] = {}
    drawn_of: dict[int, Any] = {}  # Hundreds of runs share a problem.
    for run in runs:
        record = run.record
        if id(run.problem) not in drawn_of:
            drawn_of[id(run.problem)] = _drawn(run.problem)
        drawn = drawn_of[id(run.problem)]
        own = record.name if experiments.get(record.experiment).writes_beside else ""
        key = (drawn, record.method, record.shots, record.demo_shots, record.note, run.method, repr(run.settings), own)
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def _drawn(problem: method.Problem) -> tuple[tuple[int, ...], ...]:
    """The rows of demonstrations, anchors and queries."""
    split = problem.split
    return tuple(tuple(row.row for row in part) for part in (split.demonstrations, split.anchors, problem.evaluation))
