"""The runs behind a section, and how they differ from the runs of the shipped config."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from knnprompt_jax.methods import registry
from knnprompt_jax.paper import cells, draws
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import names, published, results
from knnprompt_jax.report.results import Record
from knnprompt_jax.runs import inputs
from knnprompt_jax.store import distances

_DIRECTIONS = {"released": "KL(anchor ‖ test), as released", "forward": "KL(test ‖ anchor), Eq. 5"}
_AXES = {  # The axis that an option lists values of.
    "tasks": "task",
    "shares": "ratio",
    "prior_settings": "setting",
    "demo_shots": "demo_shots",
    "anchor_shots": "anchor_shots",
}

_COMPARED = ("truncation", "label_token", "dtype", "deterministic", "batch", "mesh", "datastore")


class Differences:
    """Differences between some records and the shipped config: `common` to all of them, and of single cells."""

    def __init__(self, ours: pd.DataFrame, shipped: settings_lib.GridSettings):
        self._shipped = shipped
        self._by_record = {id(record): list(_of_record(record, shipped)) for record in ours.record}
        sets = map(set, self._by_record.values())
        shared = sorted(set.intersection(*sets)) if len(ours) else []
        self.common = [*_missing(ours, shipped), *shared, *_fewer_seeds(ours.record, shipped)] if len(ours) else []

    def marks(self, ours: pd.DataFrame) -> tuple[str, ...]:
        """Return the differences of a cell's records that are not common to all records."""
        own = [text for record in ours.record for text in self._by_record[id(record)]]
        fewer = _fewer_seeds(ours.record, self._shipped)
        return tuple(text for text in dict.fromkeys([*own, *fewer]) if text not in self.common)


def facts(ours: pd.DataFrame, differences: Sequence[str]) -> dict[str, str]:
    """Return what was run, by title; the differences from the shipped config come last."""
    if ours.empty:
        return {}
    rows = sorted(set(ours.true.map(len)))
    tokens = sum(record.lm_tokens for record in ours.record)
    texts = {
        "Records": f"{len(ours):,}",
        "Model": ", ".join(map(names.model, names.ordered("model", ours.model))),
        "Tasks": ", ".join(map(names.task, names.ordered("task", ours.task))),
        "m": names.span(ours.shots[ours.m != results.FILLS_CONTEXT]) or "M_T",
        "Demonstrations per class": names.span(ours.demo_shots),
        "Seeds": names.span(ours.seed),
        "Test rows": f"{names.span(rows)} per task" if len(rows) < 4 else f"{rows[0]} to {rows[-1]} per task",
        "KL direction": ", ".join(sorted(filter(None, set(map(_direction, ours.record))))),
        "Read by the language model": f"{tokens:,} tokens, each record counted as if it had run alone",
        "Run on": "; ".join(sorted(set(map(_environment, ours.record)))),
        "Other rows at equal seeds": _other_rows(ours),
        "Differences from the shipped config": "; ".join(differences),
    }
    return {title: text for title, text in texts.items() if text}


def _other_rows(ours: pd.DataFrame) -> str:
    """Name the methods that use other train rows than kNN Prompting with the same seed and m, as in the released code."""
    draws_anchors = (ours.method == "knn") & (ours.demo_shots < ours.shots)
    with_knn = draws_anchors.groupby([ours.shots, ours.regime]).transform("any")
    all_at_once = (
        ours.method.map(results.sees).eq("demonstrations") & (ours.demo_shots == ours.shots) & (ours.shots > 1)
    )
    apart = ours[with_knn & all_at_once]
    if apart.empty:
        return ""
    methods = ", ".join(map(names.method, names.ordered("method", apart.method)))
    return (
        f"at m = {names.span(apart.shots)}, all m rows per class are drawn at once for {methods}; kNN Prompting draws |D| first, "
        "then its anchors from the other rows. This follows the released code; in the paper's words both use T = D ∪ A"
    )


def _direction(record: Record) -> str:
    """Return the direction of a record's KL divergences; empty if its method computes none."""
    distance = distances.DISTANCES.get(record.settings.get("options", {}).get("distance", ""))
    return _DIRECTIONS.get(distance.direction, "") if distance else ""


def _environment(record: Record) -> str:
    place = record.environment
    versions = ", ".join(f"{name} {place[name]}" for name in ("knnprompt_jax", "jax") if name in place)
    return f"{place.get('devices', '?')} × {place.get('device', 'unknown device')} ({versions})"


def _of_record(record: Record, shipped: settings_lib.GridSettings) -> Iterator[str]:
    """Yield the settings and options of a record whose shipped values are different."""
    expected = inputs.resolved(shipped).to_dict()
    compared = {name: record.settings[name] for name in _COMPARED if name in record.settings}
    for name, value in {**record.source, **compared}.items():
        if value != expected[name]:
            yield _different(name, value, expected[name])
    if record.method in registry.METHODS:
        draw = draws.Draw(record.seed, record.shots, record.demo_shots)
        usual = cells.GridCell(record.method, draw, tuple(record.cell.items())).options(shipped).to_dict()
        for name, value in record.settings.get("options", {}).items():
            if value != usual.get(name):
                yield _different(f"{names.method(record.method)}: {name}", value, usual.get(name))


def _different(name: str, value: Any, usual: Any) -> str:
    first, second = (
        ", ".join(map(str, each)) if isinstance(each, list | tuple) else str(each) or "none" for each in (value, usual)
    )
    return f"{name} = {first} instead of {second}"


def _fewer_seeds(records: Iterable[Record], shipped: settings_lib.GridSettings) -> list[str]:
    searched_once = all(results.sees(record.method) == "draws" for record in records)
    expected, ran = 1 if searched_once else len(shipped.seeds), len({record.seed for record in records})
    return [f"{ran} of {expected} seeds"] if 0 < ran < expected else []


def _missing(ours: pd.DataFrame, shipped: settings_lib.GridSettings) -> Iterator[str]:
    """Yield the models, methods, numbers of shots and other values that the config has and no record."""
    yield from _models(ours, shipped)
    if missing := _left_out(shipped.method_names, ours.method):
        yield f"without {', '.join(map(names.method, missing))}"
    if missing := _left_out(shipped.regime_shots, zip(ours.regime, ours.shots, strict=True)):
        yield f"without m = {names.span([m for _, m in missing])}"
    for option, axis in _AXES.items():
        values = getattr(shipped, option, ())
        values = settings_lib.split_names(values) if isinstance(values, str) else values
        if missing := _left_out(values, ours.get(axis, ())):
            ran = f"{len(values) - len(missing)} of {len(values)} {option.replace('_', ' ')}"
            yield f"{ran} (without {', '.join(names.text(axis, value) for value in missing)})"


def _models(ours: pd.DataFrame, shipped: settings_lib.GridSettings) -> Iterator[str]:
    usual = [published.model_of(name) for name in shipped.model_names]
    ran = names.ordered("model", ours.model)
    other = [name for name in ran if name not in (*usual, *published.own_models().values())]
    missing = _left_out(usual, ran)
    span = " to ".join(map(names.model, dict.fromkeys([missing[0], missing[-1]]))) if missing else ""
    if other and len(missing) == len(usual):
        yield f"{', '.join(map(names.model, other))} instead of {span}"
    elif missing:
        yield f"without {span}"


def _left_out(values: Iterable[Any], ran: Iterable[Any]) -> list[Any]:
    known = set(ran)
    return [value for value in values if value not in known]
