"""Task statistics: classes, tokens of a template, M_T and the share of truncated prompts.

    python experiments/paper.py --config=configs/max_shots.py --data_dir=data

Cost: no language model runs.

Paper, GPT-2's tokenizer and 1,024 tokens: M_T is 16 for SST2, 8 for SUBJ, 32 for MPQA, 2 for AGNews, 2 for CB, 8
for CR, 1 for DBPedia, 8 for MR, 4 for RTE and 8 for TREC.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.CountSettings:
    return grids.CountSettings(
        experiment="max_shots",
        tasks=("sst2", "subj", "mpqa", "agnews", "cb", "cr", "dbpedia", "mr", "rte", "trec"),
        models=("gpt2-xl",),
        contexts=(1024, 2048),
    )
