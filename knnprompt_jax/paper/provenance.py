"""Which runs a section shows, where they fall short of the paper's, and where methods see different rows."""

from collections.abc import Iterable, Sequence
from typing import Any

from knnprompt_jax.methods import registry
from knnprompt_jax.report import names, scores
from knnprompt_jax.report.scores import Record
from knnprompt_jax.store import distances

_DIRECTIONS = {"released": "KL(anchor ‖ test), as released", "forward": "KL(test ‖ anchor), Eq. 5"}


def facts(records: Sequence[Record], reductions: Sequence[str]) -> dict[str, str]:
    """What ran, name by name, where it differs from what ships last."""
    if not records:
        return {}
    shots = _distinct(record.shots for record in records if scores.axis(record, "m") is not None)
    rows = _distinct(len(record.true) for record in records)
    tokens = sum(record.lm_tokens for record in records)
    told = {
        "Records": f"{len(records):,}",
        "Model": ", ".join(map(names.model, names.ordered("model", [record.model for record in records]))),
        "Tasks": ", ".join(map(names.task, names.ordered("task", [record.task for record in records]))),
        "m": names.span(shots) or "M_T",
        "Demonstrations per class": names.span(_distinct(record.demo_shots for record in records)),
        "Seeds": names.span([record.seed for record in records]),
        "Test rows": f"{names.span(rows)} per task" if len(rows) < 4 else f"{min(rows)} to {max(rows)} per task",
        "KL direction": ", ".join(_distinct(filter(None, map(_direction, records)))),
        "Read by the language model": f"{tokens:,} tokens, each record counted as if it had run alone",
        "Run on": "; ".join(_distinct(map(_environment, records))),
        "Other rows at equal seeds": _other_rows(records),
        "Other than in the config that ships": "; ".join(reductions),
    }
    return {name: text for name, text in told.items() if text}


def _other_rows(records: Sequence[Record]) -> str:
    """The methods that see other train rows than kNN Prompting with the same seed and m, as in the released code."""
    apart: list[str] = []
    m: list[int] = []
    for (shots, _), group in scores.pool(records, "shots", "regime").items():
        knn = [record for record in group if record.method == "knn" and record.demo_shots < shots]
        whole = [record.method for record in group if _shows_all(record)]
        if knn and whole:
            apart, m = [*apart, *whole], [*m, shots]
    if not apart:
        return ""
    methods = ", ".join(map(names.method, names.ordered("method", apart)))
    return (
        f"at m = {names.span(m)}, all m rows per class are drawn at once for {methods}; kNN Prompting draws |D| first, then its anchors "
        "from the other rows. As in the released code; in the paper's words both see T = D ∪ A"
    )


def _shows_all(record: Record) -> bool:
    sees = registry.METHODS[record.method].sees if record.method in registry.METHODS else ""
    return sees == "demonstrations" and record.demo_shots == record.shots > 1


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
