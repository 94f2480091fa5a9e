"""Choice of k (figure): every number of neighbours from 1 to all anchors.

    python experiments/paper.py --config=configs/choice_of_k.py --data_dir=data

Cost with gpt2-xl: 30 passes, 9,485 prompts, 0.23 million tokens.

The paper prints no numbers for this figure.

The paper does not say m; with 32 and |D| = 1, 62 anchors of two classes remain.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.GridSettings:
    return grids.GridSettings(
        experiment="choice_of_k",
        tasks=("sst2", "subj", "mpqa"),
        models=("gpt2-xl",),
        methods=("knn",),
        shots=(32,),
        seeds=tuple(range(1, 11)),
        regime="few-shot",
    )
