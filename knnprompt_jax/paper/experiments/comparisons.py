"""Tables of methods side by side: each is a declaration only."""

from collections.abc import Iterator

from knnprompt_jax.paper import cells, experiment
from knnprompt_jax.settings import grids
from knnprompt_jax.study import job_inputs as inputs

_BOUND = "demonstration_upper_bound"


def _search_once(settings: grids.GridSettings, rows: inputs.Rows, max_demo_shots: int) -> Iterator[cells.GridCell]:
    """Yield the cells of all regimes; the upper bound is searched for with the first seed only, as published."""
    for cell in cells.regimes(settings, rows, max_demo_shots):
        if cell.method != _BOUND or cell.draw.seed == settings.seeds[0]:
            yield cell


EXPERIMENTS = (
    experiment.Experiment(
        "few_shot",
        "Few shots",
        "So few train rows per class that the context could hold most of them.",
        experiment.by_shots(
            "Accuracy against m in the few-shot scenario; † marks truncated prompts.",
            f"{experiment.SPREAD} |D| = 1; the rest are anchors.",
        ),
    ),
    experiment.Experiment(
        "low_resource",
        "Low resource",
        "More train rows than the context holds, for several models, with ensembles and fine-tuning.",
        experiment.tabulated("model", "method"),
    ),
    experiment.Experiment(
        "prompt_compose",
        "Retrieved demonstrations",
        "The train rows nearest to a test row become its prompt (PromptCompose), by four retrievers.",
        experiment.by_shots("kNN Prompting beside prompts composed of retrieved examples."),
    ),
    experiment.Experiment(
        "upper_bound",
        "Upper bound of demonstration selection",
        "The best of many random prompts, chosen on the test rows themselves: a bound, not a method.",
        experiment.tabulated(
            "method",
            caption=f"{experiment.SPREAD} The upper bound is the best prompt, chosen on the test rows themselves; ‰: the "
            "number of prompts per 1,000 that are as good.",
        ),
        cells=_search_once,
    ),
    experiment.Experiment(
        "distance",
        "Distance",
        "KL divergence of distributions beside L2 distance of hidden states.",
        experiment.tabulated("method"),
    ),
    experiment.Experiment(
        "whole_vs_partial",
        "Whole or partial distribution",
        "The whole vocabulary beside the label words alone.",
        experiment.tabulated("method"),
    ),
    experiment.Experiment(
        "fine_tuning",
        "Fine-tuning",
        "The same train rows, with and without training.",
        experiment.by_shots("kNN Prompting beside fine-tuning."),
    ),
)
