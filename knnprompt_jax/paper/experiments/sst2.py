"""SST2 with gpt2-xl, m = 1024, five seeds: the gate. The README of the paper's released code prints each seed's accuracy.

They need the published train file and `direction=released`, the default here. Another device or library may take a row or two for
the other class; a wrong template, draw, direction or weight takes many more.
"""

from collections.abc import Sequence

from knnprompt_jax.paper import experiment
from knnprompt_jax.report import names, published, scores
from knnprompt_jax.report.scores import Record, Score
from knnprompt_jax.report.tables import Cell, Table, TableRow

_AXES = ("model", "method", "m")
_PRINTED = {("icl", None): "icl", ("knn", 1024): "knn_prompting_1024"}
_ROWS = 256  # To classify.
_FORGIVEN = 2  # Rows by which a seed's accuracy may be off.


def _draw(shown: experiment.Shown) -> experiment.Drawn:
    """A row for each method, a column for each seed: no spread is needed where the seed is the same."""
    released = published.tables()["released_code_sst2"]
    groups = scores.pool(shown.records, *_AXES)
    places = {**groups, **{(released["model"], *place): None for place in _PRINTED}}
    seeds = names.ordered("seed", [*released["seeds"], *(record.seed for record in shown.records)])
    rows = []
    for place in names.ordered_places(_AXES, places):
        measured = {record.seed: record for record in groups.get(place, [])}
        theirs = _expected(*place[1:]) if place[0] == released["model"] else {}
        cells = (_cell(measured.get(seed), theirs.get(seed)) for seed in seeds)
        rows.append(TableRow(tuple(map(names.text, _AXES, place)), tuple(cells)))
    table = Table(
        name="sst2",
        caption="Accuracy on SST2 by seed, beside what the README of the paper's released code prints.",
        headers=tuple(names.HEADERS[axis] for axis in _AXES),
        columns=tuple(f"seed {seed}" for seed in seeds),
        rows=tuple(rows),
        notes=(check(shown.records),) if shown.records else (),
    )
    return [table], []


def _cell(record: Record | None, printed: float | None) -> Cell:
    ours = Score(record.accuracy) if record else None
    return Cell(ours, None if printed is None else Score(printed), True, digits=4)


def _expected(method: str, m: int | None) -> dict[int, float]:
    """The released accuracies of a method by seed."""
    released, key = published.tables()["released_code_sst2"], _PRINTED.get((method, m))
    return dict(zip(released["seeds"], released[key], strict=True)) if key else {}


def check(records: Sequence[Record]) -> str:
    """Whether these records reproduce the released accuracies, and by how much each seed is off."""
    model = published.tables()["released_code_sst2"]["model"]
    measured = [record for record in records if published.canonical(record.model) == model]
    if not measured:
        return f"gate: nothing to say: the expected accuracies are {model}'s on all of SST2's {_ROWS} rows"
    lines, off, missing = [], [], 0
    for method, m in _PRINTED:
        ours = {record.seed: record for record in measured if (record.method, scores.axis(record, "m")) == (method, m)}
        for seed, expected in _expected(method, m).items():
            if seed not in ours or len(ours[seed].true) != _ROWS:
                missing += 1
            else:
                off.append(round(_ROWS * (ours[seed].accuracy - expected)))
                lines.append(
                    f"{names.method(method)} seed {seed}: {ours[seed].accuracy:.4f}, expected {expected:.4f}{_rows(off[-1])}"
                )
    return "; ".join([_verdict(off, missing), *lines])


def _verdict(off: Sequence[int], missing: int) -> str:
    if missing:
        return f"gate: not all there: {missing} of {missing + len(off)} runs are missing"
    worst = max(map(abs, off))
    if worst > _FORGIVEN:
        return f"gate: FAIL: off by up to {worst} of {_ROWS} rows, more than {_FORGIVEN}"
    return "gate: pass: " + (
        f"off by {worst} of {_ROWS} rows at most" if worst else "every accuracy is the released one"
    )


def _rows(off: int) -> str:
    return f" ({off:+d} row{'s' if abs(off) > 1 else ''})".replace("-", "−") if off else ""


EXPERIMENTS = (
    experiment.Experiment(
        "sst2",
        "SST2, seed by seed",
        "The run whose accuracies the README of the paper's released code prints: the gate before all others.",
        _draw,
        defaults={"tasks": "sst2", "shots": (1024,)},
        matches=None,
        check=check,
    ),
)
