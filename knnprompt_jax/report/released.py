"""The accuracies that the released code's README prints for SST2, seed by seed: our rows should be its rows."""

from collections.abc import Sequence

from knnprompt_jax.report import names, published, scores
from knnprompt_jax.report.scores import Record, Score
from knnprompt_jax.report.tables import Cell, Row, Table

_KEYS = {"icl": "icl", "knn": "knn_prompting_1024"}
_SHOTS = 1024


def table(records: Sequence[Record]) -> Table:
    """A row a method, a column a seed: no spread is needed where the seed is the same."""
    groups = scores.pool(records, "model", "method", "m")
    seeds = names.ordered("seed", [record.seed for record in records])
    rows = []
    for place in names.ordered_places(("model", "method", "m"), groups):
        ours = {record.seed: Score(100 * record.accuracy) for record in groups[place]}
        theirs, comparable = _released(*place)
        cells = tuple(Cell(ours.get(seed), theirs.get(seed), comparable) for seed in seeds)
        rows.append(Row(tuple(map(names.text, ("model", "method", "m"), place)), cells, digits=2))
    return Table(
        name="sst2",
        caption="Accuracy in % on SST2 by seed, beside what the README of the paper's released code prints.",
        headers=("Model", "Method", "m"),
        columns=tuple(f"seed {seed}" for seed in seeds),
        rows=tuple(rows),
    )


def _released(model: str, method: str, m: int | None) -> tuple[dict[int, Score], bool]:
    """The released accuracies of a method by seed, and whether they were made with the same model and m."""
    found = published.tables()["released_code_sst2"]
    values = found.get(_KEYS.get(published.method_of(method), ""), [])
    accuracies = {seed: Score(100 * value) for seed, value in zip(found["seeds"], values, strict=bool(values))}
    return accuracies, published.model_of(model) == found["model"] and m in (None, _SHOTS)
