"""Distance (table): KL divergence of distributions beside L2 distance of hidden states.

    python experiments/paper.py --config=configs/distance.py --data_dir=data

Cost with gpt2-xl: 50 passes, 16,802 prompts, 3.6 million tokens.

Paper, average of ten tasks with gpt2-xl: KL 76.97, L2 75.40, in-context learning 68.31.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.GridSettings:
    return grids.GridSettings(
        experiment="distance",
        tasks=("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec"),
        models=("gpt2-xl",),
        methods=("icl", "knn_l2", "knn"),
        shots=(32,),
        seeds=(1, 2, 3, 4, 5),
    )
