"""Demonstration selection (table and figure): demonstrations that four retrievers choose for each test row.

    python experiments/paper.py --config=configs/prompt_compose.py --data_dir=data

Cost with gpt2-xl: 50 passes, 483,396 prompts, 266 million tokens.

Paper, average of ten tasks with gpt2-xl and m = 1024: kNN Prompting 81.96, Trans-Encoder 73.42, BM25 73.12, SBERT
73.12, SimCSE 72.59; in-context learning 68.31.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.GridSettings:
    return grids.GridSettings(
        experiment="prompt_compose",
        tasks=("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec"),
        models=("gpt2-xl",),
        methods=(
            "icl",
            "prompt_compose_bm25",
            "prompt_compose_sbert",
            "prompt_compose_simcse",
            "prompt_compose_trans_encoder",
            "knn",
        ),
        shots=(32, 64, 128, 256, 512, 1024),
        seeds=(1, 2, 3, 4, 5),
    )
