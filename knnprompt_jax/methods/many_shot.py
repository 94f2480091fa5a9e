"""Many-shot in-context learning: as many train rows, in random order, as the context holds.

Baek, Lee, Gupta, Oh, Dalmia, Kolhar: "Revisiting In-Context Learning with Long Context Language Models", 2024 (arXiv 2412.16926):
in long contexts, random demonstrations do as well as selected ones; what counts is to fill the context. This is a reading of its abstract:
without the augmentation that makes more rows where all that there are leave room.
"""

import dataclasses
import random

import numpy as np

from knnprompt_jax import options
from knnprompt_jax.methods import in_context, method, own_passes
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks.task import Example


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """Options of many-shot in-context learning."""

    most: int = options.option(0, "Demonstrations at most, of all classes together; 0: as many as fit.", least=0)


def demonstrations(problem: method.Problem, reader: method.Reader, settings: Settings) -> list[Example]:
    """The split's rows in an order that its seed gives, as many as leave room for the longest query; of queries that are too long
    even alone, for the longest that is not."""
    rows = problem.train_rows
    random.Random(problem.split.seed).shuffle(rows)
    rows = rows[: settings.most or None]
    # One token more for each: a blank line may be read as two where demonstrations are joined.
    lengths = reader.lengths([layout.demonstration_text(problem.task, [row]) for row in rows]) + 1
    room = reader.context - problem.num_special
    queries = reader.lengths([problem.task.render(query) for query in problem.evaluation])
    longest = max(queries[queries <= room], default=0)
    return rows[: int(np.searchsorted(np.cumsum(lengths), room - longest, side="right"))]


def run(context: method.Context, settings: Settings) -> method.Prediction:
    """Predicts by in-context learning, in a pass beside the shared pass."""
    problem, model = context.problem, context.model
    shown = demonstrations(problem, method.Reader(problem.lengths, model.context), settings)
    passes = own_passes.QueryPasses(context, [shown])
    (states,) = passes.states(f"seed {context.seed}, many shots")
    probabilities_QC = in_context.InContextLearning(context.head, context.label_ids).predict_proba(states)
    return method.Prediction(
        probabilities_QC.argmax(-1),
        probabilities_QC,
        f"{len(shown)} demonstrations",
        prompts=passes.prompts,
        truncated=passes.truncated,
    )


def cost(problem: method.Problem, reader: method.Reader, settings: Settings) -> method.Cost:
    """The demonstrations once, and all queries."""
    shown = reader.demonstration_tokens(problem.task, demonstrations(problem, reader, settings))
    return method.Cost(len(problem.evaluation), shown + reader.query_tokens(problem.task, problem.evaluation))


METHODS = (
    method.Method(
        "icl_many_shot",
        "Many-shot in-context learning",
        "Baek et al., 2024, abstract",
        run,
        settings=Settings,
        check=method.label_words_differ,
        cost=cost,
        by_name="it fills the context with demonstrations: name the method to run it",
        look=0,
    ),
)
