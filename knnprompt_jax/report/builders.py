"""One builder an experiment: its records → its tables and figures."""

from collections.abc import Callable, Mapping, Sequence

from knnprompt_jax.report import (
    accuracy_table,
    curves,
    distributions,
    drawing,
    heatmaps,
    names,
    power_law,
    prior_reliance,
    published,
    released,
    scores,
)
from knnprompt_jax.report.scores import Record
from knnprompt_jax.report.tables import Table

Parts = tuple[list[Table], list[drawing.Figure]]
_SPREAD = "Accuracy in %, mean ± sample standard deviation over seeds."


def _few_shot(records: Sequence[Record]) -> Parts:
    table = accuracy_table.build(records, ("m", "method"), f"{_SPREAD} |D| = 1; the rest are anchors.")
    caption = "Accuracy against m in the few-shot scenario; † marks prompts cut to the context."
    return [table], [curves.figure("few_shot", caption, records, curves.Plot("m", curves.SHOTS))]


def _low_resource(records: Sequence[Record]) -> Parts:
    return [accuracy_table.build(records, ("model", "method"), _SPREAD)], []


def _data_scaling(records: Sequence[Record]) -> Parts:
    few = [record for record in records if record.cell.get("regime") == scores.FEW_SHOT]
    full = [record for record in records if record.cell.get("regime") != scores.FEW_SHOT]
    knn = [record for record in full if record.method in power_law.METHODS]
    axes = ("model", "m", "method")
    built = [accuracy_table.build(full, axes, f"{_SPREAD} |D| = M_T.")] if full else []
    built += [power_law.table(knn)] if knn else []
    shown = _in_context(few)
    figures = [_first(few, full)]
    figures += [_pilot(shown)] if shown else []
    if knn:
        caption = "kNN Prompting against m; |D| = M_T."
        figures += [curves.figure("data_scaling", caption, knn, curves.Plot("m", curves.SHOTS, line="model"))]
        figures += [power_law.figure(knn)]
    return built, figures


def _first(few: Sequence[Record], full: Sequence[Record]) -> drawing.Figure:
    """The paper's first figure: in-context learning ends where the context does, kNN Prompting goes on; for one model."""
    known = {(record.method, record.shots) for record in few}
    rest = [record for record in full if (record.method, record.shots) not in known and record.method != "icl"]
    models = scores.by_model([*few, *rest])
    model = next((name for name in models if published.model_of(name) == published.MODEL), next(iter(models)))
    caption = f"With {names.model(model)}, kNN Prompting goes on where in-context learning meets the end of the context"
    plot = curves.Plot("m", curves.SHOTS)
    return curves.figure("first", f"{caption} (|D| = 1 while m is small, then M_T).", models[model], plot)


def _pilot(records: Sequence[Record]) -> drawing.Figure:
    caption = "In-context learning against the shots in its prompt; † marks prompts cut to the context."
    return curves.figure("pilot", caption, records, curves.Plot("m", "shots in the prompt, a class"))


def _in_context(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.method == "icl"]


def _prompt_compose(records: Sequence[Record]) -> Parts:
    table = accuracy_table.build(records, ("m", "method"), _SPREAD)
    caption = "kNN Prompting beside prompts composed of retrieved examples."
    return [table], [curves.figure("prompt_compose", caption, records, curves.Plot("m", curves.SHOTS))]


def _upper_bound(records: Sequence[Record]) -> Parts:
    table = accuracy_table.build(
        records, ("method",), f"{_SPREAD} The upper bound is the best prompt, chosen on the test rows themselves."
    )
    caption = "Accuracies of the random prompts tried (bars); lines and bands: mean ± one sample standard deviation over seeds."
    return [table], [distributions.prompts("upper_bound", caption, records)]


def _robustness(records: Sequence[Record]) -> Parts:
    table = accuracy_table.build(records, ("m", "method"), _SPREAD)
    caption = "Spread over seeds. Box: quartiles and median; whiskers: 1.5 times the box's height at most; dots: seeds."
    return [table], [distributions.boxes("robustness", caption, records)]


def _split_strategy(records: Sequence[Record]) -> Parts:
    table = accuracy_table.build(records, ("demo_shots", "anchor_shots"), _SPREAD)
    caption = "Mean accuracy in % for each split of the train rows; the darker, the better within its panel."
    return [table], [heatmaps.splits("split_strategy", caption, records)]


def _sst2(records: Sequence[Record]) -> Parts:
    return [released.table(records)], []


def _by_method(records: Sequence[Record]) -> Parts:
    return [accuracy_table.build(records, ("method",), _SPREAD)], []


def _prior_reliance(records: Sequence[Record]) -> Parts:
    plot = curves.Plot("ratio", "λ, share of the positive class", panel=("setting",), log=False, average=False)
    caption = "Accuracy averaged over tasks. A: train skewed; B: test skewed; C: both."
    return [prior_reliance.table(records)], [curves.figure("prior_reliance", caption, records, plot)]


def _choice_of_k(records: Sequence[Record]) -> Parts:
    line = "m" if _several(records, "m") else "method"
    plot = curves.Plot("k", "k, nearest anchors", line=line, log=False)
    table = accuracy_table.build(records, ("m", "method", "k") if _several(records, "m") else ("method", "k"), _SPREAD)
    return [table], [curves.figure("choice_of_k", "Accuracy against the number of neighbours.", records, plot)]


def _several(records: Sequence[Record], axis: str) -> bool:
    return len(scores.pool(records, axis)) > 1


def _imbalance(records: Sequence[Record]) -> Parts:
    table = accuracy_table.build(
        records, ("regime", "method", "ratio"), f"{_SPREAD} λ: one class's share of the train rows."
    )
    plot = curves.Plot("ratio", "λ, share of one class in train", panel=("task", "regime"), average=False)
    caption = "Accuracy on the balanced test rows against the skew of the train rows, with all anchors and with one mean a class."
    return [table], [curves.figure("imbalance", caption, records, plot)]


def _fine_tuning(records: Sequence[Record]) -> Parts:
    table = accuracy_table.build(records, ("m", "method"), _SPREAD)
    caption = "kNN Prompting beside fine-tuning."
    return [table], [curves.figure("fine_tuning", caption, records, curves.Plot("m", curves.SHOTS))]


BUILDERS: Mapping[str, Callable[[Sequence[Record]], Parts]] = {
    "few_shot": _few_shot,
    "low_resource": _low_resource,
    "data_scaling": _data_scaling,
    "prompt_compose": _prompt_compose,
    "upper_bound": _upper_bound,
    "robustness": _robustness,
    "split_strategy": _split_strategy,
    "distance": _by_method,
    "prior_reliance": _prior_reliance,
    "choice_of_k": _choice_of_k,
    "imbalance": _imbalance,
    "whole_vs_partial": _by_method,
    "fine_tuning": _fine_tuning,
    "sst2": _sst2,
}
TITLES = {
    "max_shots": (
        "Task statistics: how many shots a context holds",
        "Counted with the model's tokenizer; no model runs.",
    ),
    "few_shot": (
        "Few shots",
        "m train rows a class, so few that the context could hold most of them, for kNN Prompting, in-context learning and "
        "two ways to calibrate it.",
    ),
    "low_resource": (
        "Low resource",
        "More train rows than the context holds, for several models, with ensembles and fine-tuning.",
    ),
    "data_scaling": (
        "Data scaling",
        "From a few train rows to all that the context leaves out: how error falls with m.",
    ),
    "prompt_compose": (
        "Retrieved demonstrations",
        "The train rows nearest to a test row become its prompt (PromptCompose), by four retrievers.",
    ),
    "upper_bound": (
        "Upper bound of demonstration selection",
        "The best of many random prompts, chosen on the test rows themselves: a bound, no method.",
    ),
    "robustness": ("Robustness", "How much the draw of train rows matters."),
    "split_strategy": (
        "Demonstrations or anchors",
        "Train rows split between demonstrations (D) and anchors (A), a class.",
    ),
    "distance": ("Distance", "KL divergence of distributions beside L2 distance of hidden states."),
    "prior_reliance": ("Reliance on prior knowledge", "Classes out of balance in train, in test, or in both."),
    "choice_of_k": ("Choice of k", "How many neighbours vote."),
    "imbalance": ("Imbalance", "One class with a shrinking share of the train rows; the test rows stay as they are."),
    "whole_vs_partial": ("Whole or partial distribution", "All of the vocabulary beside the label words alone."),
    "fine_tuning": ("Fine-tuning", "The same train rows, with and without training."),
    "sst2": ("SST2, seed by seed", "The run whose accuracies the README of the paper's released code prints."),
    "case_study": (
        "Case study",
        "Anchors and test rows where the model's states place them, and test rows that kNN Prompting gets right and "
        "in-context learning wrong.",
    ),
}
