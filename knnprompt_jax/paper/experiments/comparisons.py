"""Tables of methods side by side: each is a declaration only."""

from collections.abc import Iterator, Sequence

from knnprompt_jax.paper import cells, experiment
from knnprompt_jax.paper import settings as settings_lib
from knnprompt_jax.runs import inputs

_BOUND = "demonstration_upper_bound"


def _searched_once(
    settings: settings_lib.GridSettings, names: Sequence[str], rows: inputs.Rows, most: int
) -> Iterator[cells.GridCell]:
    """Yield the cells of all regimes; the upper bound is searched for with the first seed only, as published."""
    for cell in cells.regimes(settings, names, rows, most):
        if cell.method != _BOUND or cell.draw.seed == settings.seeds[0]:
            yield cell


EXPERIMENTS = (
    experiment.Experiment(
        "few_shot",
        "Few shots",
        "m train rows per class, so few that the context could hold most of them, for kNN Prompting, in-context learning and "
        f"two ways to calibrate it. {experiment.OTHER_ROWS}",
        experiment.by_shots(
            "Accuracy against m in the few-shot scenario; † marks truncated prompts.",
            f"{experiment.SPREAD} |D| = 1; the rest are anchors.",
        ),
        defaults={
            "tasks": settings_lib.SIX_TASKS,
            "methods": "icl,contextual_calibration,noisy_channel,knn,knn_partial",
            "shots": settings_lib.FEW_SHOTS,
            "seeds": settings_lib.TEN_SEEDS,
            "regime": settings_lib.FEW_SHOT,
        },
    ),
    experiment.Experiment(
        "low_resource",
        "Low resource",
        "More train rows than the context holds, for several models, with ensembles and fine-tuning.",
        experiment.tabulated("model", "method"),
        defaults={
            "models": settings_lib.SIX_MODELS,
            "methods": "icl,icl_ensemble,knn,fine_tuning_bert,fine_tuning_gpt2",
            "shots": (128,),
        },
    ),
    experiment.Experiment(
        "prompt_compose",
        "Retrieved demonstrations",
        "The train rows nearest to a test row become its prompt (PromptCompose), by four retrievers.",
        experiment.by_shots("kNN Prompting beside prompts composed of retrieved examples."),
        defaults={
            "methods": "icl,prompt_compose_bm25,prompt_compose_sbert,prompt_compose_simcse,prompt_compose_trans_encoder,knn"
        },
    ),
    experiment.Experiment(
        "upper_bound",
        "Upper bound of demonstration selection",
        "The best of many random prompts, chosen on the test rows themselves: a bound, not a method.",
        experiment.tabulated(
            "method",
            caption=f"{experiment.SPREAD} The upper bound is the best prompt, chosen on the test rows themselves; ‰: the number of "
            "prompts per 1,000 that are as good.",
        ),
        defaults={"tasks": settings_lib.SIX_TASKS, "methods": f"icl,{_BOUND},knn", "shots": (1024,)},
        cells=_searched_once,
    ),
    experiment.Experiment(
        "distance",
        "Distance",
        "KL divergence of distributions beside L2 distance of hidden states.",
        experiment.tabulated("method"),
        defaults={"methods": "icl,knn_l2,knn", "shots": (32,)},
    ),
    experiment.Experiment(
        "whole_vs_partial",
        "Whole or partial distribution",
        "The whole vocabulary beside the label words alone.",
        experiment.tabulated("method"),
        defaults={"methods": "icl,knn,knn_partial", "shots": (1024,)},
    ),
    experiment.Experiment(
        "fine_tuning",
        "Fine-tuning",
        "The same train rows, with and without training.",
        experiment.by_shots("kNN Prompting beside fine-tuning."),
        defaults={"models": "gpt2-large,facebook/opt-30b", "methods": "knn,fine_tuning_bert,fine_tuning_gpt2"},
    ),
)
