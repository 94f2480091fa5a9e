"""SST2 with gpt2-xl, m = 1024, five seeds: the run whose accuracies the README of the paper's released code prints.

Expected accuracy, seeds 1 to 5: kNN Prompting 0.8711, 0.8867, 0.8906, 0.8711, 0.8906; in-context learning 0.8438, 0.8125, 0.7227,
0.8633, 0.8242. They need the published train file and `direction=released`, the default here.
Cost: 5 passes, 11 thousand prompts, 0.22 million tokens.
"""

from collections.abc import Sequence

from knnprompt_jax.paper import experiment
from knnprompt_jax.report import names, published, scores
from knnprompt_jax.report.scores import Record, Score
from knnprompt_jax.report.tables import Cell, Row, Table

_AXES = ("model", "method", "m")
_KEYS = {"ICL": "icl", "kNN Prompting": "knn_prompting_1024"}  # By what the paper calls the method.
_SHOTS = 1024


def _table(records: Sequence[Record]) -> Table:
    """A row for each method, a column for each seed: no spread is needed where the seed is the same."""
    groups = scores.pool(records, *_AXES)
    seeds = names.ordered("seed", [record.seed for record in records])
    rows = []
    for place in names.ordered_places(_AXES, groups):
        ours = {record.seed: Score(100 * record.accuracy) for record in groups[place]}
        theirs, comparable = _released(*place)
        cells = tuple(Cell(ours.get(seed), theirs.get(seed), comparable) for seed in seeds)
        rows.append(Row(tuple(map(names.text, _AXES, place)), cells, digits=2))
    return Table(
        name="sst2",
        caption="Accuracy in % on SST2 by seed, beside what the README of the paper's released code prints.",
        headers=tuple(names.HEADERS[axis] for axis in _AXES),
        columns=tuple(f"seed {seed}" for seed in seeds),
        rows=tuple(rows),
    )


def _released(model: str, method: str, m: int | None) -> tuple[dict[int, Score], bool]:
    """The released accuracies of a method by seed, and whether they were made with the same model and m."""
    released = published.tables()["released_code_sst2"]
    key = next((key for printed, key in _KEYS.items() if published.is_printed_as(method, printed)), None)
    accuracies = dict(zip(released["seeds"], released[key], strict=True)) if key else {}
    comparable = published.model_of(model) == released["model"] and m in (None, _SHOTS)
    return {seed: Score(100 * accuracy) for seed, accuracy in accuracies.items()}, comparable


EXPERIMENT = experiment.Experiment(
    "sst2",
    "SST2, seed by seed",
    "The run whose accuracies the README of the paper's released code prints.",
    lambda records: ([_table(records)], []),
    defaults={"tasks": "sst2", "shots": (1024,)},
)
