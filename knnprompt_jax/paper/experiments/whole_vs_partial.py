"""Whole against partial distribution (table): all tokens or label words alone, m = 1024.

Cost: 50 passes, 0.18 million prompts, 69 million tokens, most of them DBPedia's truncated prompts.
"""

from knnprompt_jax.paper import experiment, settings

EXPERIMENT = experiment.Experiment(
    "whole_vs_partial",
    "Whole or partial distribution",
    "All of the vocabulary beside the label words alone.",
    experiment.tabulated("method"),
    defaults={"methods": "icl,knn,knn_partial", "shots": (1024,)},
    printed={"seeds": settings.TEN_SEEDS},
)
