"""Split strategy (figures): at most M_T train rows per class, split into demonstrations and anchors.

    python experiments/paper.py --config=configs/split_strategy.py --data_dir=data

Cost with gpt2-xl: 180 passes, 49,779 prompts, 1.3 million tokens.

The paper prints no numbers for these figures.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.SplitSettings:
    return grids.SplitSettings(
        experiment="split_strategy",
        tasks=("sst2", "subj", "mpqa", "cr", "mr"),
        models=("gpt2-xl",),
        methods=("knn",),
        demo_shots=(1, 2, 4, 8, 16),
        anchor_shots=(1, 2, 4, 8, 16),
        seeds=tuple(range(1, 11)),
    )
