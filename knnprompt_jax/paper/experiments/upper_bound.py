"""Upper bound of demonstration selection (table): the best of 1,000 random prompts against kNN Prompting, m = 1024.

The bound is chosen on the rows to classify. It is searched for with the first seed only, as published.
Cost: 30 passes, 1.6 million prompts, 43 million tokens, a thousand prompts for each row to classify.
"""

from collections.abc import Iterator, Sequence

from knnprompt_jax.paper import cells, experiment
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.report import distributions
from knnprompt_jax.runs import material


def _cells(
    settings: settings_lib.GridSettings, names: Sequence[str], rows: material.Rows, most: int
) -> Iterator[cells.Cell]:
    for cell in cells.regimes(settings, names, rows, most):
        if cell.method != distributions.BOUND or cell.draw.seed == settings.seeds[0]:
            yield cell


EXPERIMENT = experiment.Experiment(
    "upper_bound",
    "Upper bound of demonstration selection",
    "The best of many random prompts, chosen on the test rows themselves: a bound, no method.",
    experiment.drawn(
        ("method",),
        distributions.prompts,
        "Accuracies of the random prompts tried (bars); lines and bands: mean ± one sample standard deviation over seeds.",
        f"{experiment.SPREAD} The upper bound is the best prompt, chosen on the test rows themselves.",
    ),
    defaults={"tasks": settings_lib.SIX_TASKS, "methods": f"icl,{distributions.BOUND},knn", "shots": (1024,)},
    printed={"seeds": settings_lib.TEN_SEEDS},
    cells=_cells,
)
