"""Methods with several templates: the best of them is the best on average over seeds, not each seed's own."""

import dataclasses
from collections.abc import Sequence

from knnprompt_jax.methods import noisy_channel, registry
from knnprompt_jax.report.scores import Record

OF_EACH_SEED = "{}, best template of each seed"
_METHODS = frozenset(method.name for method in noisy_channel.METHODS)


def settled(records: Sequence[Record]) -> list[Record]:
    """The records; those with the accuracies of several templates have that of the template that is best over their seeds."""
    groups: dict[str, list[Record]] = {}
    for record in filter(_has_templates, records):
        place = record.model, record.task, record.method, record.shots, record.demo_shots, sorted(record.cell.items())
        groups.setdefault(repr(place), []).append(record)
    chosen: dict[int, Record] = {}
    for group in groups.values():
        best = noisy_channel.best_template([record.candidates for record in group])
        chosen |= {id(record): dataclasses.replace(record, accuracy=record.candidates[best]) for record in group}
    return [chosen.get(id(record), record) for record in records]


def of_each_seed(records: Sequence[Record]) -> list[Record]:
    """Of those with several templates, the mean of maxima: each with the template that is best with its own seed."""
    return [
        dataclasses.replace(
            record,
            method=OF_EACH_SEED.format(registry.get(record.method).title),
            accuracy=max(record.candidates),
            candidates=(),
        )
        for record in records
        if _has_templates(record)
    ]


def _has_templates(record: Record) -> bool:
    return record.method in _METHODS and len(record.candidates) > 1
