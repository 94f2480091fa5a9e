"""Imbalance (figure): one class with a shrinking share of the train rows, with and without class means.

    python experiments/paper.py --config=configs/imbalance.py --data_dir=data

Cost with gpt2-xl: 40 passes, 81,762 prompts, 1.8 million tokens.

The paper prints no numbers for this figure.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.ImbalanceSettings:
    return grids.ImbalanceSettings(
        experiment="imbalance",
        tasks=("mpqa", "mr"),
        models=("gpt2-xl",),
        methods=("knn", "knn_centroid", "knn_centroid_geometric"),
        shots=(1024,),
        few_shots=(32,),
        shares=(0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625),
        seeds=tuple(range(1, 11)),
    )
