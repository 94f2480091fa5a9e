"""Reliance on prior knowledge (table): the positive class rare in the train rows (A), in the test rows (B), in both (C).

The paper does not say m; 16 is ours.
Cost: 250 passes, 1.1 million prompts, 57 million tokens, the noisy channel's for the greater part.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from knnprompt_jax import errors, options
from knnprompt_jax.paper import cells, experiment
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import curves, names, published, scores
from knnprompt_jax.report.scores import Record, Score
from knnprompt_jax.report.tables import Cell, Row, Table
from knnprompt_jax.runs import material

_BALANCED = 0.5
_IN_TRAIN, _IN_TEST = ("A", "C"), ("B", "C")
_SETTINGS = ("A", "B", "C")


@dataclasses.dataclass(frozen=True)
class Settings(settings_lib.GridSettings):
    """Those of a grid of skewed train and test rows."""

    prior_settings: str = options.option("A,B,C", "A: rare in train; B: rare in test; C: both. With commas.")
    shares: tuple[float, ...] = options.option(
        (0.125, 0.25, 0.375, 0.5), "Of the positive class.", least=0.001, most=0.5
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in settings_lib.split_names(self.prior_settings):
            if name not in _SETTINGS:
                raise errors.UserError(f"prior_settings={self.prior_settings!r}: choose from {', '.join(_SETTINGS)}")


def _cells(settings: Settings, names: Sequence[str], rows: material.Rows, most: int) -> Iterator[cells.Cell]:
    for setting, share, cell in itertools.product(
        settings_lib.split_names(settings.prior_settings), settings.shares, cells.regimes(settings, names, rows, most)
    ):
        yield dataclasses.replace(
            cell,
            draw=dataclasses.replace(cell.draw, share=share if setting in _IN_TRAIN else None),
            axes=(*cell.axes, ("setting", setting), ("ratio", share)),
            test_share=share if setting in _IN_TEST else None,
        )


def _draw(records: Sequence[Record]) -> experiment.Drawn:
    plot = curves.Plot("ratio", "λ, share of the positive class", panel=("setting",), log=False, average=False)
    caption = "Accuracy averaged over tasks. A: train skewed; B: test skewed; C: both."
    return [_table(records)], [curves.figure("prior_reliance", caption, records, plot)]


def _table(records: Sequence[Record]) -> Table:
    """A row for each setting and method, averaged over tasks; the paper prints no spread, so no difference is judged."""
    ratios = names.ordered("ratio", [scores.axis(record, "ratio") for record in records])
    axes = ("model", "setting", "method") if len(scores.by_model(records)) > 1 else ("setting", "method")
    groups, printed = scores.pool(records, *axes), published.tables()["prior_reliance"]
    comparable = {published.model_of(record.model) for record in records} == {printed["model"]}
    comparable &= {record.task for record in records} == {task.lower() for task in printed["tasks"]}
    rows = []
    for place in names.ordered_places(axes, groups):
        *_, setting, method = place
        by_ratio = scores.pool(groups[place], "ratio")
        ours = {ratio: scores.average(by_ratio[ratio,]) for ratio in ratios if (ratio,) in by_ratio}
        theirs = _printed(setting, method)
        row = [Cell(ours.get(ratio), theirs.get(ratio), comparable) for ratio in ratios]
        row += [Cell(*pair, comparable) for pair in zip(_summary(ours), _summary(theirs), strict=True)]
        rows.append(Row(tuple(map(names.text, axes, place)), tuple(row)))
    reference = f"The paper's numbers are {names.model(printed['model'])}'s over five tasks: a reference only."
    return Table(
        name="prior_reliance",
        caption="Accuracy in % averaged over tasks by the share λ of the positive class. A: train skewed; B: test skewed; "
        "C: both. Drop: the lowest less the balanced one.",
        headers=tuple(names.HEADERS[axis] for axis in axes),
        columns=(*(f"λ = {ratio:g}" for ratio in ratios), "average", "drop"),
        rows=tuple(rows),
        reference="" if comparable else reference,
    )


def _summary(by_ratio: Mapping[float, Score]) -> tuple[Score | None, Score | None]:
    """The average over ratios, and the lowest less the balanced."""
    if not by_ratio:
        return None, None
    means = {ratio: score.mean for ratio, score in by_ratio.items()}
    skewed = [mean for ratio, mean in means.items() if ratio != _BALANCED]
    drop = Score(min(skewed) - means[_BALANCED]) if skewed and _BALANCED in means else None
    return Score(sum(means.values()) / len(means)), drop


def _printed(setting: str, method: str) -> dict[float, Score]:
    """The paper's numbers in a setting, by ratio."""
    return {
        float(ratio): Score(mean)
        for row in published.tables()["prior_reliance"]["rows"]
        if row["setting"] == setting and published.is_printed_as(method, row["method"])
        for ratio, mean in row["ratio"].items()
    }


EXPERIMENT = experiment.Experiment(
    "prior_reliance",
    "Reliance on prior knowledge",
    "Classes out of balance in train, in test, or in both.",
    _draw,
    defaults={
        "tasks": settings_lib.BINARY_TASKS,
        "methods": "icl,contextual_calibration,contextual_calibration_trainset,noisy_channel,knn",
        "shots": (16,),
        "seeds": settings_lib.TEN_SEEDS,
        "regime": settings_lib.FEW_SHOT,
    },
    printed={"shots": ()},
    cells=_cells,
    settings=Settings,
)
