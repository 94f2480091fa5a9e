"""Robustness (figure): the spread over 10 seeds for each anchor-set size, m = 32 … 1024.

Cost: 100 passes, 0.41 million prompts, 144 million tokens, most of them DBPedia's truncated prompts.
"""

from knnprompt_jax.paper import experiment, settings
from knnprompt_jax.report import distributions

EXPERIMENT = experiment.Experiment(
    "robustness",
    "Robustness",
    "How much the draw of train rows matters.",
    experiment.drawn(
        ("m", "method"),
        distributions.boxes,
        "Spread over seeds. Box: quartiles and median; whiskers: 1.5 times the box's height at most; dots: seeds.",
    ),
    defaults={"seeds": settings.TEN_SEEDS},
    printed={"tasks": "", "shots": ()},
)
