"""Reliance on prior knowledge (table): skewed train rows (A), skewed test rows (B) or both (C).

    python experiments/paper.py --config=configs/prior_reliance.py --data_dir=data

Cost with gpt2-xl: 250 passes, 885,962 prompts, 51 million tokens.

Paper, average of five tasks and all λ with gpt2-xl, settings A, B and C: kNN Prompting 79.98, 78.38 and 80.12;
in-context learning 65.15, 57.04 and 55.57.

The paper does not say m; 16 is our choice.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.PriorSettings:
    return grids.PriorSettings(
        experiment="prior_reliance",
        tasks=("sst2", "subj", "mpqa", "cr", "mr"),
        models=("gpt2-xl",),
        methods=("icl", "contextual_calibration", "contextual_calibration_trainset", "noisy_channel", "knn"),
        shots=(16,),
        prior_settings=("A", "B", "C"),
        shares=(0.125, 0.25, 0.375, 0.5),
        seeds=tuple(range(1, 11)),
        regime="few-shot",
    )
