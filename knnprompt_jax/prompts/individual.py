"""Other demonstrations for every query: whole prompts, which share no prefix."""

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
    """One prompt per query, after its demonstrations; `layout.lay_out` says what the arguments mean and raises.

    With truncation "drop" each prompt loses demonstrations for itself; `dropped_demonstrations` is the most that a prompt lost.
    """
    each = [
        layout.lay_out(task, shown, [query], tokenize, context, truncation)
        for shown, query in zip(demonstrations, queries, strict=True)
    ]
    if not each:
        return layout.Prompts(groups=(), num_prompts=0)
    groups = [group for prompts in each for group in prompts.groups]
    suffixes = tuple(np.concatenate([group.prefix_P, group.suffixes[0]]) for group in groups)
    whole = layout.PromptGroup(np.array([], np.int32), suffixes, np.arange(len(queries)))
    return layout.Prompts(
        groups=(whole,),
        num_prompts=len(queries),
        num_truncated=sum(prompts.num_truncated for prompts in each),
        num_oversized=sum(prompts.num_oversized for prompts in each),
        dropped_demonstrations=max(prompts.dropped_demonstrations for prompts in each),
    )
