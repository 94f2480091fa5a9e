"""Few-shot scenario (the main table): m = 2 … 32, |D| = 1 for kNN Prompting, calibration-based baselines beside it, 10 seeds.

Cost: 360 passes, 0.92 million prompts, 43 million tokens: most prompts are the noisy channel's, most tokens those of truncated prompts.
"""

from knnprompt_jax.paper import experiment, settings

EXPERIMENT = experiment.Experiment(
    "few_shot",
    "Few shots",
    "m train rows per class, so few that the context could hold most of them, for kNN Prompting, in-context learning and "
    "two ways to calibrate it.",
    experiment.by_shots(
        "Accuracy against m in the few-shot scenario; † marks prompts cut to the context.",
        f"{experiment.SPREAD} |D| = 1; the rest are anchors.",
    ),
    defaults={
        "tasks": settings.SIX_TASKS,
        "methods": "icl,contextual_calibration,noisy_channel,knn,knn_partial",
        "shots": settings.FEW_SHOTS,
        "seeds": settings.TEN_SEEDS,
        "regime": settings.FEW_SHOT,
    },
)
