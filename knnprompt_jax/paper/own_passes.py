"""What methods read beside the shared pass, estimated before any weight is loaded: for the plan and its time left."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from knnprompt_jax.methods import method
from knnprompt_jax.methods.fine_tuning import method as fine_tuning
from knnprompt_jax.paper import subjects

_TRAINING = 3  # A training step costs about three forward passes.
_TEMPLATES = 4


class Cost(NamedTuple):
    """Prompts and tokens."""

    prompts: int
    tokens: int


def estimate(one: method.Method, problem: method.Problem, model: subjects.Model, options: Mapping[str, Any]) -> Cost:
    """The prompts and, roughly, the tokens of a method's own passes; none for one that reads the shared pass alone."""
    num_queries, classes, split = len(problem.evaluation), problem.task.num_classes, problem.split
    shown = [problem.task.render(row, row.label) + "\n" for row in split.demonstrations]
    prefix = int(model.lengths(shown).sum())
    suffixes = int(model.lengths([problem.task.render(row) for row in problem.evaluation]).sum())
    context = model.config.num_positions
    if one.name == "icl_ensemble":
        sets = split.shots // split.demo_shots - 1
        return Cost(sets * num_queries, sets * (prefix + suffixes))
    if one.name == "demonstration_upper_bound":
        return Cost(options["num_prompts"] * num_queries, options["num_prompts"] * (prefix + suffixes))
    if one.name.startswith("prompt_compose_"):
        return Cost(num_queries, num_queries * min(context, prefix + suffixes // num_queries))
    if one.name == "icl_multi_token":
        return Cost(classes * num_queries, prefix + classes * suffixes)
    if one.name.startswith("noisy_channel"):
        texts = classes * num_queries * (1 if options["template"] else _TEMPLATES)
        contexts = len(shown) if options["demonstrations"] == "ensembled" else 1
        return Cost(texts * contexts, texts // num_queries * contexts * (min(prefix, context) + suffixes))
    if one.name.startswith("fine_tuning"):
        config = fine_tuning.configure(
            problem, **{key: options[key] for key in options if key not in ("model", "checkpoints")}
        )
        rows = config.steps * config.batch
        return Cost(num_queries, suffixes + _TRAINING * rows * suffixes // num_queries)
    return Cost(0, 0)
