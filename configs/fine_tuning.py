"""Fine-tuning (figure): kNN Prompting over m, to be compared with fine-tuned models of `experiments/fine_tune.py`.

    python experiments/paper.py --config=configs/fine_tuning.py --data_dir=data

Cost with each GPT-2: 50 passes, 205,316 prompts, 74 million tokens; with each OPT (GPT-2's tokenizer): 50 passes,
204,137 prompts, 10 million tokens.

Paper, average of ten tasks and m = 1024 (table of data scaling): gpt2-large 81.61, opt-30b 86.02.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.GridSettings:
    return grids.GridSettings(
        experiment="fine_tuning",
        tasks=("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec"),
        models=("gpt2-large", "facebook/opt-30b"),
        methods=("knn",),
        shots=(32, 64, 128, 256, 512, 1024),
        seeds=(1, 2, 3, 4, 5),
    )
