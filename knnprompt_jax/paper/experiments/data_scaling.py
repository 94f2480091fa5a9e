"""Data scaling (table and figure with the power law, and the paper's first two figures): m = 32 … 1024, six model sizes.

The first figure and the pilot figure of ICL against shots need 1 … 32 shots in the few-shot regime too.
Cost: A model with 1,024 tokens of context: 175 passes, 0.24 million prompts, 76 million tokens, most of them DBPedia's
truncated prompts; one with 2,048: 215 passes, 0.25 million prompts, 12 million tokens.
"""

from collections.abc import Sequence

from knnprompt_jax.paper import experiment, settings
from knnprompt_jax.report import accuracy_table, curves, drawing, names, power_law, published, scores
from knnprompt_jax.report.scores import Record


def _draw(records: Sequence[Record]) -> experiment.Drawn:
    few = [record for record in records if record.cell.get("regime") == settings.FEW_SHOT]
    full = [record for record in records if record.cell.get("regime") != settings.FEW_SHOT]
    knn, shown = power_law.knn(full), [record for record in few if record.method == "icl"]
    tables, figures = [], [_first(few, full)]
    if full:
        tables.append(accuracy_table.build(full, ("model", "m", "method"), f"{experiment.SPREAD} |D| = M_T."))
    if shown:
        caption = "In-context learning against the shots in its prompt; † marks prompts cut to the context."
        figures.append(curves.figure("pilot", caption, shown, curves.Plot("m", "shots in the prompt, per class")))
    if knn:
        plot = curves.Plot("m", curves.SHOTS, line="model")
        tables.append(power_law.table(knn))
        figures.append(curves.figure("data_scaling", "kNN Prompting against m; |D| = M_T.", knn, plot))
        figures.append(power_law.figure(knn))
    return tables, figures


def _first(few: Sequence[Record], full: Sequence[Record]) -> drawing.Figure:
    """The paper's first figure: in-context learning ends where the context does, kNN Prompting goes on; for one model."""
    known = {(record.method, record.shots) for record in few}
    rest = [record for record in full if (record.method, record.shots) not in known and record.method != "icl"]
    models = scores.by_model([*few, *rest])
    model = next((name for name in models if published.model_of(name) == published.MODEL), next(iter(models)))
    caption = f"With {names.model(model)}, kNN Prompting goes on where in-context learning meets the end of the context"
    plot = curves.Plot("m", curves.SHOTS)
    return curves.figure("first", f"{caption} (|D| = 1 while m is small, then M_T).", models[model], plot)


EXPERIMENT = experiment.Experiment(
    "data_scaling",
    "Data scaling",
    "From a few train rows to all that the context leaves out: how error falls with m.",
    _draw,
    defaults={"models": settings.SIX_MODELS, "few_shots": (1, *settings.FEW_SHOTS)},
    printed={"few_shots": ()},
)
