"""Few-shot scenario (table and figure): kNN Prompting with one demonstration per class, beside calibrations.

    python experiments/paper.py --config=configs/few_shot.py --data_dir=data

Cost with gpt2-xl: 360 passes, 919,319 prompts, 43 million tokens.

Paper, average of six tasks with gpt2-xl and m = 32: kNN Prompting 79.64, kNN Prompting on label words 72.41, noisy
channel 71.14, contextual calibration 67.66, in-context learning 66.22.
"""

from knnprompt_jax.cli import paper_settings as grids


def get_config() -> grids.GridSettings:
    return grids.GridSettings(
        experiment="few_shot",
        tasks=("sst2", "subj", "mpqa", "cr", "mr", "trec"),
        models=("gpt2-xl",),
        methods=("icl", "contextual_calibration", "noisy_channel", "knn", "knn_kl_labels"),
        shots=(2, 4, 8, 16, 32),
        seeds=tuple(range(1, 11)),
        regime="few-shot",
    )
