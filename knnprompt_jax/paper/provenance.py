"""The runs behind a section, and how they differ from the runs of the shipped config."""

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from knnprompt_jax.methods import registry
from knnprompt_jax.paper import cells, draws
from knnprompt_jax.report import names, published, results
from knnprompt_jax.report.results import Record
from knnprompt_jax.runs import inputs
from knnprompt_jax.runs import run as run_lib
from knnprompt_jax.settings import grids
from knnprompt_jax.store import distances

_AXES = {  # The axis that an option lists values of.
    **{"models": "model", "tasks": "task", "methods": "method", "shots": "shots", "few_shots": "shots"},
    **{"shares": "ratio", "prior_settings": "setting", "demo_shots": "demo_shots", "anchor_shots": "anchor_shots"},
}
_COMPARED = ("truncation", "label_token", "dtype", "deterministic", "batch", "mesh", "datastore")


class Differences:
    """Differences between some records and the shipped config: `common` to all of them, and of single cells."""

    def __init__(self, ours: pd.DataFrame, shipped: grids.GridSettings):
        self._shipped = shipped
        self._by_record = {id(record): list(_of_record(record, shipped)) for record in ours.record}
        self.common: list[str] = []
        if len(ours):
            shared = set.intersection(*map(set, self._by_record.values()))
            self.common = [*_missing(ours, shipped), *sorted(shared), *_fewer_seeds(ours.record, shipped)]

    def marks(self, ours: pd.DataFrame) -> tuple[str, ...]:
        """Return the differences of a cell's records that are not common to all records."""
        own = [text for record in ours.record for text in self._by_record[id(record)]]
        fewer = _fewer_seeds(ours.record, self._shipped)
        return tuple(text for text in dict.fromkeys([*own, *fewer]) if text not in self.common)


def facts(ours: pd.DataFrame, differences: Sequence[str]) -> dict[str, str]:
    """Return what was run, by title; the differences from the shipped config come last."""
    if ours.empty:
        return {}
    options = [record.settings.get("options", {}) for record in ours.record]
    kinds = {distances.DISTANCES[each["distance"]] for each in options if each.get("distance") in distances.DISTANCES}
    places = [record.environment for record in ours.record]
    texts = {
        "Records": f"{len(ours):,}",
        "Model": ", ".join(map(names.model, names.ordered("model", ours.model))),
        "Tasks": ", ".join(map(names.task, names.ordered("task", ours.task))),
        "m": names.span(ours.shots[ours.m != results.FILLS_CONTEXT]) or "M_T",
        "Demonstrations per class": names.span(ours.demo_shots),
        "Seeds": names.span(ours.seed),
        "Test rows": f"{names.span(ours.true.map(len))} per task",
        "KL direction": ", ".join(sorted({each.title for each in kinds if each.direction})),
        "Read by the language model": f"{sum(record.lm_tokens for record in ours.record):,} tokens, each record counted "
        "as if it had run alone",
        "Run on": "; ".join(sorted({", ".join(f"{key} {value}" for key, value in each.items()) for each in places})),
        "Differences from the shipped config": "; ".join(differences),
    }
    return {title: text for title, text in texts.items() if text}


def _of_record(record: Record, shipped: grids.GridSettings) -> Iterator[str]:
    """Yield the settings and options of a record whose shipped values are different."""
    expected = {**inputs.resolved(shipped).to_dict(), **run_lib.source_of(shipped)}
    values = {**record.source, **{name: record.settings[name] for name in _COMPARED if name in record.settings}}
    if record.method in registry.METHODS:
        draw = draws.Draw(record.seed, record.shots, record.demo_shots)
        usual = cells.GridCell(record.method, draw, tuple(record.cell.items())).options(shipped).to_dict()
        for name, value in record.settings.get("options", {}).items():
            title = f"{names.method(record.method)}: {name}"
            expected[title], values[title] = usual.get(name), value
    for name, value in values.items():
        if value != expected[name]:
            first, second = (
                ", ".join(map(str, each)) if isinstance(each, list | tuple) else str(each) or "none"
                for each in (value, expected[name])
            )
            yield f"{name} = {first} instead of {second}"


def _fewer_seeds(records: Iterable[Record], shipped: grids.GridSettings) -> list[str]:
    searched_once = all(results.sees(record.method) == "draws" for record in records)
    expected, ran = 1 if searched_once else len(shipped.seeds), len({record.seed for record in records})
    return [f"{ran} of {expected} seeds"] if 0 < ran < expected else []


def _missing(ours: pd.DataFrame, shipped: grids.GridSettings) -> Iterator[str]:
    """Yield the models, methods, numbers of shots and other values that the config has and no record."""
    for option, axis in _AXES.items():
        wanted = [published.canonical(value) if axis == "model" else value for value in getattr(shipped, option, ())]
        if missing := [names.text(axis, value) for value in wanted if value not in set(ours.get(axis, ()))]:
            yield f"without {names.HEADERS[axis]} {', '.join(missing)}"
