"""Prompts whose queries have different demonstrations, and so no shared prefix."""

from collections.abc import Sequence

import numpy as np

from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks.task import Example, Task


def lay_out(
    task: Task,
    demonstrations: Sequence[Sequence[Example]],
    queries: Sequence[Example],
    tokenize: layout.Tokenize,
    context: int,
    truncation: str = "left",
) -> layout.Prompts:
    """Lay out one prompt per query, after its own demonstrations; arguments and errors are those of `layout.lay_out`.

    With truncation "drop" each prompt drops its own demonstrations; `dropped_demonstrations` is the largest number.
    """
    if not queries:
        return layout.Prompts(groups=(), num_prompts=0)
    laid_out = [
        layout.lay_out(task, own, [query], tokenize, context, truncation)
        for own, query in zip(demonstrations, queries, strict=True)
    ]
    groups = [group for prompts in laid_out for group in prompts.groups]
    suffixes = tuple(np.concatenate([group.prefix_P, group.suffixes[0]]) for group in groups)
    whole = layout.PromptGroup(np.array([], np.int32), suffixes, np.arange(len(queries)))
    return layout.Prompts(
        groups=(whole,),
        num_prompts=len(queries),
        num_truncated=sum(prompts.num_truncated for prompts in laid_out),
        num_oversized=sum(prompts.num_oversized for prompts in laid_out),
        dropped_demonstrations=max(prompts.dropped_demonstrations for prompts in laid_out),
    )
