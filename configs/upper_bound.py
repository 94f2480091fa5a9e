"""Upper bound of demonstration selection (table): the best of 1,000 random prompts, chosen on the test rows.

    python experiments/paper.py --config=configs/upper_bound.py --data_dir=data

Cost with gpt2-xl: 30 passes, 1,613,149 prompts, 44 million tokens.

Paper, SST2 with gpt2-xl: kNN Prompting 88.2, the upper bound 92.6, in-context learning 81.3; TREC: 83.0, 73.0 and
54.2.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.GridSettings:
    return grids.GridSettings(
        experiment="upper_bound",
        tasks=("sst2", "subj", "mpqa", "cr", "mr", "trec"),
        models=("gpt2-xl",),
        methods=("icl", "demonstration_upper_bound", "knn"),
        shots=(1024,),
        seeds=(1, 2, 3, 4, 5),
    )
