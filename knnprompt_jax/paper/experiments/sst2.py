"""SST2 with gpt2-xl, m = 1024, five seeds: the gate. The README of the paper's released code prints each seed's accuracy.

The expected numbers need the published train file and `direction=released`, the default here. Another device or library may change
a row or two; a wrong template, draw, direction or weight changes many more.
"""

from collections.abc import Sequence

from knnprompt_jax.paper import experiment
from knnprompt_jax.report import names, published, results, tables
from knnprompt_jax.report.results import Record, Score
from knnprompt_jax.report.tables import Cell

_AXES = ("model", "method", "m")
_PRINTED = {("icl", results.FILLS_CONTEXT): "icl", ("knn", 1024): "knn_prompting_1024"}
_ROWS = 256  # Test rows.
_TOLERANCE = 2  # Rows that a seed may differ in.


def _draw(data: experiment.Data) -> experiment.Drawn:
    """Return a row per method and a column per seed: equal seeds need no spread."""
    released, measured = published.tables()["released_code_sst2"], results.groups(data.ours, _AXES)
    seeds = names.ordered("seed", [*released["seeds"], *data.ours.seed])
    cells = {}
    for place in names.ordered_places(_AXES, {*measured, *((released["model"], *each) for each in _PRINTED)}):
        runs = measured.get(place, data.ours[:0])
        ours = {seed: Score(accuracy / 100) for seed, accuracy in zip(runs.seed, runs.accuracy, strict=True)}
        expected = _expected(*place[1:]) if place[0] == released["model"] else {}
        cells[place] = {
            seed: Cell(ours.get(seed), Score(expected[seed]) if seed in expected else None, True, digits=4)
            for seed in seeds
        }
    caption = "Accuracy on SST2 by seed, beside the README of the paper's released code."
    notes = [check(list(data.ours.record))] if len(data.ours) else []
    return [tables.build("sst2", caption, _AXES, {seed: f"seed {seed}" for seed in seeds}, cells, notes)], []


def _expected(method: str, m: int) -> dict[int, float]:
    """Return the released accuracies of a method by seed."""
    released, key = published.tables()["released_code_sst2"], _PRINTED.get((method, m))
    return dict(zip(released["seeds"], released[key], strict=True)) if key else {}


def check(records: Sequence[Record]) -> str:
    """Return whether the records reproduce the released accuracies, and how many rows each seed differs in."""
    model = published.tables()["released_code_sst2"]["model"]
    ours = results.frame([record for record in records if published.canonical(record.model) == model])
    if ours.empty:
        return f"gate: no verdict: the expected accuracies are {model}'s on all {_ROWS} rows of SST2"
    lines, differences, missing = [], [], 0
    for method, m in _PRINTED:
        runs = ours[(ours.method == method) & (ours.m == m) & (ours.true.map(len) == _ROWS)].set_index("seed")
        for seed, expected in _expected(method, m).items():
            if seed not in runs.index:
                missing += 1
                continue
            accuracy = runs.accuracy[seed] / 100
            difference = round(_ROWS * (accuracy - expected))
            differences.append(abs(difference))
            rows = f" ({difference:+d} row{'s' if abs(difference) > 1 else ''})".replace("-", "−") if difference else ""
            lines.append(f"{names.method(method)} seed {seed}: {accuracy:.4f}, expected {expected:.4f}{rows}")
    worst = max(differences, default=0)
    verdict = f"pass: at most {worst} of {_ROWS} rows differ" if worst else "pass: every accuracy is the released one"
    if worst > _TOLERANCE:
        verdict = f"FAIL: up to {worst} of {_ROWS} rows differ, more than {_TOLERANCE}"
    if missing:
        verdict = f"incomplete: {missing} of {missing + len(differences)} runs are missing"
    return "; ".join([f"gate: {verdict}", *lines])


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
