"""Case studies (figures): maps of anchors and test rows, and test rows that only kNN Prompting predicts correctly.

    python experiments/paper.py --config=configs/case_study.py --data_dir=data

Cost with gpt2-xl: 5 passes, 2,057 prompts, 0.75 million tokens.

The paper prints no numbers for these figures.

The paper does not say m and seed; 32 and 1 are our choice.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.GridSettings:
    return grids.GridSettings(
        experiment="case_study",
        tasks=("dbpedia", "sst2", "trec", "agnews", "mr"),
        models=("gpt2-xl",),
        methods=("icl", "knn"),
        shots=(32,),
        seeds=(1,),
    )
