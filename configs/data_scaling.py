"""Data scaling (table, and figures of scaling, power law and in-context learning): six model sizes over m.

    python experiments/paper.py --config=configs/data_scaling.py --data_dir=data

Cost with each GPT-2: 175 passes, 241,817 prompts, 76 million tokens; with each OPT (GPT-2's tokenizer): 215 passes,
249,878 prompts, 12 million tokens.

Paper, average of ten tasks and kNN Prompting with m = 1024: gpt2-large 81.61, gpt2-xl 81.96, opt-2.7b 83.64,
opt-6.7b 83.82, opt-13b 85.87, opt-30b 86.02; in-context learning with gpt2-xl 68.31.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.ScalingSettings:
    return grids.ScalingSettings(
        experiment="data_scaling",
        tasks=("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec"),
        models=(
            "gpt2-large",
            "gpt2-xl",
            "facebook/opt-2.7b",
            "facebook/opt-6.7b",
            "facebook/opt-13b",
            "facebook/opt-30b",
        ),
        methods=("icl", "knn"),
        shots=(32, 64, 128, 256, 512, 1024),
        few_shots=(1, 2, 4, 8, 16, 32),
        seeds=(1, 2, 3, 4, 5),
    )
