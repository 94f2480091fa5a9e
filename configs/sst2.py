"""SST2 seed by seed: the first run, which shows whether weights, data and prompts are those of the paper.

    python experiments/paper.py --config=configs/sst2.py --data_dir=data

Cost with gpt2-xl: 5 passes, 11,359 prompts, 0.22 million tokens.

README of the paper's released code, seeds 1 to 5: in-context learning 84.38, 81.25, 72.27, 86.33 and 82.42; kNN
Prompting 87.11, 88.67, 89.06, 87.11 and 89.06. The command fails if a seed is off by more than 2 of 256 rows.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.GridSettings:
    return grids.GridSettings(
        experiment="sst2",
        tasks=("sst2",),
        models=("gpt2-xl",),
        methods=("icl", "knn"),
        shots=(1024,),
        seeds=(1, 2, 3, 4, 5),
    )
