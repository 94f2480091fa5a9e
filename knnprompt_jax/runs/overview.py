"""Tables over records: the methods of one comparison, and methods against tasks for each number of shots."""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from knnprompt_jax import errors, tables
from knnprompt_jax.methods import registry
from knnprompt_jax.runs import records

COMMONEST = "(the commonest class)"
_UNEVEN = 1.5
_LISTED = 4


def of_comparison(done: Sequence[records.Record]) -> str:
    """The table that a comparison prints, and the lines above and below it."""
    first, runs = done[0], {record.seed: record for record in done}.values()
    header, imbalanced = ["method", "accuracy %", "seconds", "LM tokens"], _imbalanced(first)
    if imbalanced:
        header.insert(2, "macro F1 %")
    rows = []
    notes: list[str] = []
    for name, own in _grouped(done, lambda record: record.method).items():
        costs = [f"{np.mean([record.seconds['method'] for record in own]):.2f}"]
        costs.append(f"{np.mean([record.lm_tokens for record in own]):,.0f}")
        if imbalanced:
            costs.insert(0, tables.spread([record.macro_f1 for record in own]))
        for number, (title, accuracies) in enumerate(_lines(name, own)):
            rows.append([title, tables.spread(accuracies), *(costs if number == 0 else [""] * len(costs))])
        notes += _notes(name, own)
    stores = [record.datastore for record in done if record.datastore]
    return "\n".join(
        [
            f"task {first.task}, model {first.model}, {len(first.true)} test rows, {_counted(len(runs), 'seed')}; "
            f"{100 * _commonest(first):.1f} % of the rows are of the commonest class",
            f"{first.shots} shots per class: {first.demo_shots} demonstrations per class, the rest anchors ({_sizes(first)})",
            "",
            tables.render(header, rows),
            "",
            "Seconds and LM tokens are per seed: LM tokens as if the method ran alone, seconds without the shared pass.",
            _shared_pass(list(runs)),
            *_truncated(done),
            *_decided_by_rounding(done),
            *([of_datastore(stores[-1])] if stores else []),
            *notes,
        ]
    )


def _shared_pass(runs: Sequence[records.Record]) -> str:
    """How long the language model read what methods share."""
    seconds = np.mean([record.seconds["language_model"] for record in runs])
    if not seconds:
        return "Shared pass: none; no method needs it, or its states were kept by earlier runs."
    return f"Shared pass: {seconds:.1f} s per seed, {np.mean([record.prompts_per_second for record in runs]):.1f} prompts/s."


def _sizes(record: records.Record) -> str:
    """How many demonstrations and anchors each class has; classes of the same numbers together."""
    words = collections.defaultdict(list)
    for label, counts in record.class_counts.items():
        words[counts["demonstrations"], counts["anchors"]].append(counts.get("word", label))
    sizes = [f"{shown}+{anchors} of {', '.join(alike)}" for (shown, anchors), alike in words.items()]
    return f"demonstrations+anchors: {'; '.join(sizes)}"


def _truncated(done: Sequence[records.Record]) -> Iterator[str]:
    """The methods some of whose prompts were cut; those with the same share together."""
    for (truncated, prompts), own in _grouped(done, lambda record: _total(done, record.method)).items():
        if truncated:
            titles = dict.fromkeys(registry.get(record.method).title for record in own)
            yield f"{truncated} of {prompts} prompts truncated ({100 * truncated / prompts:.1f} %): {', '.join(titles)}."


def _decided_by_rounding(done: Sequence[records.Record]) -> Iterator[str]:
    """How many predictions rounding may change, for each method that says so."""
    told = []
    for name, own in _grouped(done, lambda record: record.method).items():
        marked = [record.decided_by_rounding for record in own if record.decided_by_rounding is not None]
        if count := sum(map(len, marked)):
            told.append(f"{registry.get(name).title} {count} of {sum(len(record.true) for record in own):,}")
    if told:
        yield f"Predictions that another machine, dtype or batch size may change, by rounding: {', '.join(told)}."


def _total(done: Sequence[records.Record], name: str) -> tuple[int, int]:
    own = [record for record in done if record.method == name]
    return sum(record.truncated_prompts for record in own), sum(record.prompts for record in own)


def of_datastore(described: Mapping[str, Any]) -> str:
    """Two lines: the anchors, and their search."""
    transfers = (
        f", {described['anchors_per_transfer']} anchors per transfer" if described["anchors_per_transfer"] else ""
    )
    return (
        f"datastore: {described['kind']} {described['key_dtype']} on the {described['placement']}, "
        f"{described['anchors']} anchors of {described['bytes_per_anchor']:,} bytes, {_size(described['bytes'])}\n"
        f"search: {described['queries_per_block']} queries per block{transfers}, "
        f"{described['anchors_per_tile']} anchors per tile, "
        f"{_size(described['search_bytes'])} of at most {described['search_memory_mb']:g} MB"
    )


def by_shots(done: Sequence[records.Record], markdown: bool = False) -> str:
    """For each number of shots a table of methods against tasks: mean ± sample standard deviation over seeds, in %.

    Accuracies, and below them macro F1 on the tasks whose classes are not of about the same size. A cell of fewer seeds than the
    table's most says how many in brackets.

    Raises:
        UserError: two records of the same method, task, shots and seed, with the settings that tell them apart.
    """
    _check_distinct(done)
    render, parts = tables.render_markdown if markdown else tables.render, []
    for shots, own in sorted(_grouped(done, lambda record: record.shots).items()):
        seeds = max(map(len, _grouped(own, lambda record: (record.method, record.task)).values()))
        heading = f"{shots} shots per class, {_counted(seeds, 'seed')}"
        commonest = [COMMONEST, *(f"{100 * _commonest(each[0]):.1f}" for each in _by_task(own).values())]
        header, rows = _against_tasks(own, seeds, _lines)
        parts += [f"### {heading}" if markdown else heading, "", render(header, [commonest, *rows]), ""]
        if uneven := [record for record in own if _imbalanced(record)]:
            parts += ["Macro F1, where classes are of unequal size:", ""]
            parts += [render(*_against_tasks(uneven, seeds, _macro_f1)), ""]
    return "\n".join(parts).rstrip()


def _against_tasks(
    done: Sequence[records.Record], seeds: int, lines: Callable[..., Iterator[tuple[str, list[float]]]]
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of one table, of what `lines` gives for a method and its records."""
    by_task, rows = _by_task(done), []
    ran = {record.method for record in done}
    for name in (name for name in registry.METHODS if name in ran):
        cells: dict[str, dict[str, str]] = {}
        for task, own in by_task.items():
            for title, values in lines(name, [record for record in own if record.method == name]):
                fewer = f" ({len(values)})" if len(values) < seeds else ""
                cells.setdefault(title, {})[task] = tables.spread(values) + fewer
        rows += [[title, *(own.get(task, "") for task in by_task)] for title, own in cells.items()]
    return ["method", *by_task], rows


def _lines(name: str, done: Sequence[records.Record]) -> Iterator[tuple[str, list[float]]]:
    """A method's title and accuracies; where it kept the best of several candidates, those of their mean and worst too."""
    if done:
        yield registry.get(name).title, [record.accuracy for record in done]
    if chosen := [record.candidates for record in done if record.candidates]:
        yield f"· mean of its {len(chosen[0])}", [float(np.mean(accuracies)) for accuracies in chosen]
        yield f"· worst of its {len(chosen[0])}", [min(accuracies) for accuracies in chosen]


def _macro_f1(name: str, done: Sequence[records.Record]) -> Iterator[tuple[str, list[float]]]:
    """A method's title and macro F1."""
    if done:
        yield registry.get(name).title, [record.macro_f1 for record in done]


def _notes(name: str, done: Sequence[records.Record]) -> Iterator[str]:
    """The method's note; the first seed's where seeds differ."""
    notes = dict.fromkeys(record.note for record in done)
    if note := next(iter(notes)):
        yield f"{registry.get(name).title}{f', seed {done[0].seed}' if len(notes) > 1 else ''}: {note}."


def _commonest(record: records.Record) -> float:
    return max(collections.Counter(record.true).values()) / len(record.true)


def _imbalanced(record: records.Record) -> bool:
    """Whether the commonest class has at least `_UNEVEN` times its even share of the rows."""
    classes = len(record.class_counts) or len(set(record.true))
    return _commonest(record) * classes >= _UNEVEN


def _size(num_bytes: float) -> str:
    return f"{num_bytes / 2**20:,.1f} MB"


def _check_distinct(done: Sequence[records.Record]) -> None:
    same = _grouped(done, lambda record: (record.method, record.task, record.shots, record.seed))
    for (name, task, shots, seed), own in same.items():
        if len(own) > 1:
            raise errors.UserError(
                f"{len(own)} records of {name} on {task}, {shots} shots, seed {seed}, that differ in {_differences(own)}: "
                "keep them in folders of their own"
            )


def _differences(done: Sequence[records.Record]) -> str:
    """The settings in which records differ, with their values."""
    told = [
        dict(_flat({"model": record.model, "demo_shots": record.demo_shots, **record.settings, **record.cell}))
        for record in done
    ]
    names = dict.fromkeys(name for settings in told for name in settings)
    values = {name: list(dict.fromkeys(str(settings.get(name, "")) for settings in told)) for name in names}
    different = [f"{name} ({', '.join(each[:_LISTED])})" for name, each in values.items() if len(each) > 1]
    return ", ".join(different[:_LISTED]) or "the model's weights"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _by_task(done: Sequence[records.Record]) -> dict[str, list[records.Record]]:
    return _grouped(done, lambda record: record.task)


def _grouped(done: Sequence[records.Record], key: Callable[[records.Record], Any]) -> dict[Any, list[records.Record]]:
    groups = collections.defaultdict(list)
    for record in done:
        groups[key(record)].append(record)
    return dict(groups)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
