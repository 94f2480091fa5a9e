"""Reliance on prior knowledge: accuracy over tasks by setting and share of the positive class, as in the paper's table."""

from collections.abc import Mapping, Sequence

from knnprompt_jax.report import names, published, scores
from knnprompt_jax.report.scores import Record, Score
from knnprompt_jax.report.tables import Cell, Row, Table

BALANCED = 0.5


def table(records: Sequence[Record]) -> Table:
    """A row a setting and method; the paper prints no spread, so no difference is judged."""
    ratios = names.ordered("ratio", [scores.axis(record, "ratio") for record in records])
    axes = ("model", "setting", "method") if len(scores.by_model(records)) > 1 else ("setting", "method")
    groups, paper = scores.pool(records, *axes), _paper()
    comparable = {published.model_of(record.model) for record in records} == {published.MODEL}
    comparable &= {record.task for record in records} == {task.lower() for task in _table()["tasks"]}
    rows = []
    for place in names.ordered_places(axes, groups):
        *_, setting, method = place
        parts = scores.pool(groups[place], "ratio")
        ours = {ratio: scores.average(parts[ratio,]) for ratio in ratios if (ratio,) in parts}
        theirs = paper.get((setting, published.method_of(method)), {})
        cells = [Cell(ours.get(ratio), theirs.get(ratio), comparable) for ratio in ratios]
        cells += [Cell(end, other, comparable) for end, other in zip(_ends(ours), _ends(theirs), strict=True)]
        rows.append(Row(tuple(map(names.text, axes, place)), tuple(cells)))
    return Table(
        name="prior_reliance",
        caption="Accuracy in % averaged over tasks by the share λ of the positive class. A: train skewed; B: test skewed; "
        "C: both. Drop: the lowest less the balanced one.",
        headers=tuple(names.HEADERS[axis] for axis in axes),
        columns=(*(f"λ = {ratio:g}" for ratio in ratios), "average", "drop"),
        rows=tuple(rows),
        reference=""
        if comparable
        else f"The paper's numbers are {names.model(published.MODEL)}'s over five tasks: a reference only.",
    )


def _ends(by_ratio: Mapping[float, Score]) -> tuple[Score | None, Score | None]:
    """The average over ratios, and the lowest less the balanced."""
    if not by_ratio:
        return None, None
    means = {ratio: score.mean for ratio, score in by_ratio.items()}
    skewed = [mean for ratio, mean in means.items() if ratio != BALANCED]
    drop = Score(min(skewed) - means[BALANCED]) if skewed and BALANCED in means else None
    return Score(sum(means.values()) / len(means)), drop


def _table() -> Mapping:
    return published.tables()["prior_reliance"]


def _paper() -> dict[tuple[str, str], dict[float, Score]]:
    return {
        (row["setting"], published.METHODS[row["method"]]): {
            float(ratio): Score(mean) for ratio, mean in row["ratio"].items()
        }
        for row in _table()["rows"]
    }
