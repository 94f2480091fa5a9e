"""Low resource (table): m = 128, ten tasks, six model sizes, beside the ICL ensemble and fine-tuned BERT-large and GPT-2 large.

Cost: A model with 1,024 tokens of context: 100 passes, 0.85 million prompts, 68 million tokens, the ensemble's for the
greater part; one with 2,048: 0.62 million prompts, 40 million tokens. Beside them 200 models are fine-tuned, 250 steps each.
"""

from knnprompt_jax.paper import experiment, settings

EXPERIMENT = experiment.Experiment(
    "low_resource",
    "Low resource",
    "More train rows than the context holds, for several models, with ensembles and fine-tuning.",
    experiment.tabulated("model", "method"),
    defaults={
        "models": settings.SIX_MODELS,
        "methods": "icl,icl_ensemble,knn,fine_tuning_bert,fine_tuning_gpt2",
        "shots": (128,),
        "seeds": settings.TEN_SEEDS,
    },
)
