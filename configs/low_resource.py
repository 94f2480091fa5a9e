"""Low-resource scenario (table): 128 train rows per class with six model sizes, beside an ensemble.

    python experiments/paper.py --config=configs/low_resource.py --data_dir=data

Cost with each GPT-2: 50 passes, 424,771 prompts, 34 million tokens; with each OPT (GPT-2's tokenizer): 50 passes,
307,543 prompts, 20 million tokens.

Paper, average of ten tasks with gpt2-xl: kNN Prompting 80.12, ICL ensemble 69.21, in-context learning 68.31; with
opt-30b: 85.38, 82.45 and 80.21. Fine-tuned: BERT large 82.31, GPT-2 large 81.88 (`experiments/fine_tune.py`).
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.GridSettings:
    return grids.GridSettings(
        experiment="low_resource",
        tasks=("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec"),
        models=(
            "gpt2-large",
            "gpt2-xl",
            "facebook/opt-2.7b",
            "facebook/opt-6.7b",
            "facebook/opt-13b",
            "facebook/opt-30b",
        ),
        methods=("icl", "icl_ensemble", "knn"),
        shots=(128,),
        seeds=(1, 2, 3, 4, 5),
    )
