"""Robustness (figure): the spread over ten seeds.

    python experiments/paper.py --config=configs/robustness.py --data_dir=data

Cost with gpt2-xl: 100 passes, 410,615 prompts, 144 million tokens.

Paper, standard deviation with gpt2-large (0.8B) and m = 32: kNN Prompting 3.83, in-context learning 9.14.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.GridSettings:
    return grids.GridSettings(
        experiment="robustness",
        tasks=("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec"),
        models=("gpt2-xl",),
        methods=("icl", "knn"),
        shots=(32, 64, 128, 256, 512, 1024),
        seeds=tuple(range(1, 11)),
    )
