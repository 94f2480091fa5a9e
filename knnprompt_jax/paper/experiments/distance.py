"""Distance measurement (table): L2 between contextual representations against KL between distributions, m = 32.

Cost: 50 passes, 17 thousand prompts, 3.6 million tokens.
"""

from knnprompt_jax.paper import experiment, settings

EXPERIMENT = experiment.Experiment(
    "distance",
    "Distance",
    "KL divergence of distributions beside L2 distance of hidden states.",
    experiment.tabulated("method"),
    defaults={"methods": "icl,knn_l2,knn", "shots": (32,)},
    printed={"seeds": settings.TEN_SEEDS},
)
