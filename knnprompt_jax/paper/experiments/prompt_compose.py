"""Demonstration selection (table and figure): PromptCompose by four retrievers against kNN Prompting, m = 32 … 1024.

Cost: 50 passes, 0.49 million prompts, 270 million tokens: each retrieved prompt is read whole.
"""

from knnprompt_jax.paper import experiment

EXPERIMENT = experiment.Experiment(
    "prompt_compose",
    "Retrieved demonstrations",
    "The train rows nearest to a test row become its prompt (PromptCompose), by four retrievers.",
    experiment.by_shots("kNN Prompting beside prompts composed of retrieved examples."),
    defaults={
        "methods": "icl,prompt_compose_bm25,prompt_compose_sbert,prompt_compose_simcse,prompt_compose_trans_encoder,knn"
    },
)
