"""Where runs fall short of a table's shipped config, or differ from it: found by comparison, said by the page."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from knnprompt_jax import options
from knnprompt_jax.methods import registry
from knnprompt_jax.paper import cells, draws
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import names, published, scores
from knnprompt_jax.report.scores import Record

_AXES = {  # Which axis of a record holds the values of an option.
    "tasks": "task",
    "seeds": "seed",
    "shares": "ratio",
    "prior_settings": "setting",
    "demo_shots": "demo_shots",
    "anchor_shots": "anchor_shots",
}


class Reductions:
    """The differences of some records from the config that ships: those of all of them, and those of single cells."""

    def __init__(self, records: Sequence[Record], shipped: settings_lib.GridSettings):
        self._shipped = shipped
        each = [set(_of_record(record, shipped)) for record in records]
        common = set.intersection(*each) if each else set()
        self._seeds = _fewer_seeds(records, shipped)
        self.common = [*_missing(records, shipped), *sorted(common), *self._seeds] if records else []

    def of_cell(self, records: Sequence[Record]) -> tuple[str, ...]:
        """What a cell's records differ in beside what all records do."""
        own = dict.fromkeys(told for record in records for told in _of_record(record, self._shipped))
        return tuple(told for told in (*own, *_fewer_seeds(records, self._shipped)) if told not in self.common)


def _of_record(record: Record, shipped: settings_lib.GridSettings) -> Iterator[str]:
    """The settings and options with which a record was made and which ship with another value."""
    expected = options.decisive(shipped)
    for name, value in record.settings.items():
        if name in expected:
            yield from _different(name, value, expected[name])
    if record.method in registry.METHODS:
        drawn = draws.Draw(record.seed, record.shots, record.demo_shots)
        cell = cells.GridCell(record.method, drawn, tuple(record.cell.items()))
        usual, title = cell.options(shipped).to_dict(), names.method(record.method)
        for name, value in record.settings.get("options", {}).items():
            yield from _different(f"{title}: {name}", value, usual.get(name))


def _different(name: str, value: Any, usual: Any) -> Iterator[str]:
    if value != usual:
        yield f"{name} = {_told(value)} in place of {_told(usual)}"


def _told(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value) if value != "" else "none"


def _fewer_seeds(records: Sequence[Record], shipped: settings_lib.GridSettings) -> list[str]:
    methods = {record.method for record in records}
    once = bool(methods) and all(name in registry.METHODS and registry.get(name).sees == "draws" for name in methods)
    expected, ran = 1 if once else len(shipped.seeds), len({record.seed for record in records})
    return [f"{ran} of {expected} seeds"] if 0 < ran < expected else []


def _missing(records: Sequence[Record], shipped: settings_lib.GridSettings) -> Iterator[str]:
    """The models, methods, m and values of other axes that the config has and no record."""
    yield from _models(records, shipped)
    if left := _left_out(shipped.method_names, (record.method for record in records)):
        yield f"without {', '.join(map(names.method, left))}"
    seen = [(record.cell.get("regime", shipped.regime), record.shots) for record in records]
    if left := _left_out(shipped.regime_shots, seen):
        yield f"without m = {names.span([m for _, m in left])}"
    for option, axis in _AXES.items():
        values = getattr(shipped, option, ())
        values = settings_lib.split_names(values) if isinstance(values, str) else values
        left = _left_out(values, (scores.axis(record, axis) for record in records))
        if left and option != "seeds":
            shown = ", ".join(names.task(value) if axis == "task" else names.text(axis, value) for value in left)
            yield f"{len(values) - len(left)} of {len(values)} {option.replace('_', ' ')} (without {shown})"


def _models(records: Sequence[Record], shipped: settings_lib.GridSettings) -> Iterator[str]:
    usual = [published.model_of(name) for name in shipped.model_names]
    ran = names.ordered("model", [record.model for record in records])
    other = [name for name in ran if name not in (*usual, *published.own_models().values())]
    if other and len(_left_out(usual, ran)) == len(usual):
        yield f"{', '.join(map(names.model, other))} in place of {_several(usual)}"
    elif left := _left_out(usual, ran):
        yield f"without {_several(left)}"


def _left_out(values: Iterable[Any], ran: Iterable[Any]) -> list[Any]:
    known = set(ran)
    return [value for value in values if value not in known]


def _several(models: Sequence[str]) -> str:
    return names.model(models[0]) + (f" to {names.model(models[-1])}" if len(models) > 1 else "")
