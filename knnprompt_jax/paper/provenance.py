"""Which runs a section shows, and where they fall short of the paper's."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import names, published, scores
from knnprompt_jax.report.scores import Record
from knnprompt_jax.store import distances

_MOST_ROWS = 256  # Of a test set, in the published protocol; CB has 56 in all.
_DIRECTIONS = {"released": "KL(anchor ‖ test), as released", "forward": "KL(test ‖ anchor), Eq. 5"}


def facts(records: Sequence[Record], printed: settings_lib.GridSettings) -> dict[str, str]:
    """What ran, name by name, the reductions from what the paper ran last; what is empty in `printed` the paper does not say."""
    shots = _distinct(record.shots for record in records if scores.axis(record, "m") is not None)
    rows = _distinct(len(record.true) for record in records)
    tokens = sum(record.lm_tokens for record in records)
    told = {
        "Records": f"{len(records):,}",
        "Model": ", ".join(map(names.model, names.ordered("model", [record.model for record in records]))),
        "Tasks": ", ".join(map(names.task, names.ordered("task", [record.task for record in records]))),
        "m": names.span(shots) or "M_T",
        "Seeds": names.span([record.seed for record in records]),
        "Test rows": f"{names.span(rows)} per task" if len(rows) < 4 else f"{min(rows)} to {max(rows)} per task",
        "KL direction": ", ".join(_distinct(filter(None, map(_direction, records)))),
        "Read by the language model": f"{tokens:,} tokens, each record counted as if it had run alone",
        "Run on": "; ".join(_distinct(map(_environment, records))),
        "Fewer than in the paper": "; ".join(_reductions(records, shots, max(rows), printed)),
    }
    return {name: text for name, text in told.items() if text}


def _reductions(
    records: Sequence[Record], shots: Sequence[int], rows: int, printed: settings_lib.GridSettings
) -> Iterator[str]:
    models = _distinct(published.model_of(record.model) for record in records)
    printed_models = [published.model_of(name) for name in printed.model_names]
    tasks, seeds = {record.task for record in records}, len({record.seed for record in records})
    if not set(models) & {*printed_models, *published.own_models().values()}:
        yield f"{', '.join(map(names.model, models))} in place of {_several(printed_models)}"
    elif missing := [model for model in printed_models if model not in models]:
        yield f"without {_several(missing)}"
    if missing := [names.task(task) for task in printed.task_names if task not in tasks]:
        yield f"{len(printed.task_names) - len(missing)} of {len(printed.task_names)} tasks (without {', '.join(missing)})"
    if missing := [str(m) for m in sorted({*printed.shots, *printed.few_shots}) if m not in shots]:
        yield f"without m = {', '.join(missing)}"
    if seeds < len(printed.seeds):
        yield f"{seeds} of {len(printed.seeds)} seeds"
    if rows < _MOST_ROWS and tasks != {"cb"}:
        yield f"{rows} of {_MOST_ROWS} test rows"


def _several(models: Sequence[str]) -> str:
    return names.model(models[0]) + (f" to {names.model(models[-1])}" if len(models) > 1 else "")


def _distinct(values: Iterable[Any]) -> list[Any]:
    return sorted(set(values))


def _direction(record: Record) -> str:
    """In which direction a record's method takes KL divergences; empty where it takes none."""
    distance = distances.DISTANCES.get(record.settings.get("options", {}).get("distance", ""))
    return _DIRECTIONS.get(distance.direction, "") if distance else ""


def _environment(record: Record) -> str:
    place = record.environment
    installed = {name: version for name, version in place.items() if version != "not installed"}
    versions = ", ".join(f"{name} {installed[name]}" for name in ("knnprompt_jax", "jax") if name in installed)
    return f"{place.get('devices', '?')} × {place.get('device', 'unknown device')} ({versions})"
