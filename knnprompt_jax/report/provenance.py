"""Which runs a section shows, and where they fall short of the paper's."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from knnprompt_jax.report import names, published, scores
from knnprompt_jax.report.scores import Record

_BINARY = ("sst2", "subj", "mpqa", "mr", "cr")
_FEW = ("sst2", "subj", "mpqa", "cr", "mr", "trec")
_ALL = ("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec")
_SCALING = (32, 64, 128, 256, 512, 1024)
_MOST_ROWS = 256  # Of a test set, in the published protocol; CB has 56 in all.


@dataclasses.dataclass(frozen=True)
class Grid:
    """What the paper ran; empty tasks or shots where it does not say."""

    tasks: tuple[str, ...] = _ALL
    shots: tuple[int, ...] = ()
    seeds: int = 10
    models: tuple[str, ...] = (published.MODEL,)


_GRIDS = {
    "few_shot": Grid(_FEW, (2, 4, 8, 16, 32)),
    "low_resource": Grid(shots=(128,), models=tuple(published.SIZES.values())),
    "data_scaling": Grid(shots=_SCALING, seeds=5, models=tuple(published.SIZES.values())),
    "prompt_compose": Grid(shots=_SCALING, seeds=5),
    "upper_bound": Grid(_FEW, (1024,)),
    "robustness": Grid(()),
    "split_strategy": Grid(()),
    "distance": Grid(shots=(32,)),
    "prior_reliance": Grid(_BINARY),
    "choice_of_k": Grid(("sst2", "subj", "mpqa")),
    "imbalance": Grid(("mpqa", "mr"), (32, 1024)),
    "whole_vs_partial": Grid(shots=(1024,)),
    "fine_tuning": Grid(shots=_SCALING),
    "sst2": Grid(("sst2",), (1024,), seeds=5),
    "case_study": Grid(("sst2", "trec", "agnews", "mr", "dbpedia"), seeds=1),
}


def facts(records: Sequence[Record]) -> dict[str, str]:
    """What ran, name by name, the reductions last."""
    shots = _values(record.shots for record in records if scores.axis(record, "m") is not None)
    rows = _values(len(record.true) for record in records)
    found = {
        "Records": f"{len(records):,}",
        "Model": ", ".join(
            names.model(model) for model in names.ordered("model", _values(one.model for one in records))
        ),
        "Tasks": ", ".join(names.task(task) for task in names.ordered("task", _values(one.task for one in records))),
        "m": names.span(shots) or "M_T",
        "Seeds": names.span(_values(record.seed for record in records)),
        "Test rows": f"{names.span(rows)} a task" if len(rows) < 4 else f"{min(rows)} to {max(rows)} a task",
        "KL direction": ", ".join(_values(_direction(record) for record in records if record.method.startswith("knn"))),
        "Read by the language model": f"{sum(record.lm_tokens for record in records):,} tokens, each "
        "record counted as if it had run alone",
        "Run on": "; ".join(_values(_environment(record) for record in records)),
        "Fewer than in the paper": "; ".join(_reductions(records, shots, rows)),
    }
    return {name: text for name, text in found.items() if text}


def _reductions(records: Sequence[Record], shots: Sequence[int], rows: Sequence[int]) -> Iterable[str]:
    grid = _GRIDS[records[0].experiment]
    models = {published.model_of(record.model) for record in records}
    tasks, seeds = {record.task for record in records}, len({record.seed for record in records})
    if not models & {*grid.models, *published.FINE_TUNED.values()}:
        yield f"{', '.join(map(names.model, sorted(models)))} in place of {_several(grid.models)}"
    elif missing := [model for model in grid.models if model not in models]:
        yield f"without {_several(missing)}"
    if missing := [names.task(task) for task in grid.tasks if task not in tasks]:
        yield f"{len(grid.tasks) - len(missing)} of {len(grid.tasks)} tasks (without {', '.join(missing)})"
    if missing := [str(m) for m in grid.shots if m not in shots]:
        yield f"without m = {', '.join(missing)}"
    if seeds < grid.seeds:
        yield f"{seeds} of {grid.seeds} seeds"
    if max(rows) < _MOST_ROWS and tasks != {"cb"}:
        yield f"{max(rows)} of {_MOST_ROWS} test rows"


def _several(models: Sequence[str]) -> str:
    return names.model(models[0]) + (f" to {names.model(models[-1])}" if len(models) > 1 else "")


def _values(values: Iterable[Any]) -> list[Any]:
    return sorted(set(values))


def _direction(record: Record) -> str:
    options = record.settings.get("options", {}).get(record.method, {})
    direction = options.get("direction", record.settings.get("direction", ""))
    return {"released": "KL(anchor ‖ test), as released", "forward": "KL(test ‖ anchor), Eq. 5"}.get(
        direction, direction
    )


def _known(version: str | None) -> bool:
    return version not in (None, "not installed")


def _environment(record: Record) -> str:
    place = record.environment
    versions = ", ".join(f"{name} {place[name]}" for name in ("knnprompt_jax", "jax") if _known(place.get(name)))
    return f"{place.get('devices', '?')} × {place.get('device', 'unknown device')} ({versions})"
