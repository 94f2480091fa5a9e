"""Comparison to fine-tuning (figure): kNN Prompting against fine-tuned BERT-large and GPT-2 large, m = 32 … 1024.

Cost: gpt2-large: 50 passes, 0.21 million prompts, 74 million tokens; opt-30b with its longer context far fewer tokens.
Beside them 600 models are fine-tuned, 125 to 500 steps each.
"""

from knnprompt_jax.paper import experiment, settings

EXPERIMENT = experiment.Experiment(
    "fine_tuning",
    "Fine-tuning",
    "The same train rows, with and without training.",
    experiment.by_shots("kNN Prompting beside fine-tuning."),
    defaults={"models": "gpt2-large,facebook/opt-30b", "methods": "knn,fine_tuning_bert,fine_tuning_gpt2"},
    printed={"seeds": settings.TEN_SEEDS},
)
