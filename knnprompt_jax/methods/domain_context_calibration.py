"""Domain-context calibration: contextual calibration whose inputs are random words of the task's own texts.

Fei, Hou, Chen, Bosselut: "Mitigating Label Biases for In-context Learning", ACL 2023, Section 5: the bias is the mean
over 20 texts of L words drawn from the task's corpus, L its mean length. As in the released code, words are lower-cased
and drawn with replacement, field by field, and a text ends in " ."; the corpus is the split's train rows, labels unused.
"""

import random
from collections.abc import Sequence

from knnprompt_jax.methods import contextual_calibration, method
from knnprompt_jax.tasks.task import Example

NUM_TEXTS = 20


def domain_queries(problem: method.Problem) -> list[Example]:
    """Queries of random in-domain words, seeded by the split's seed."""
    generator = random.Random(problem.split.seed)
    texts = {
        field: _random_texts([row.fields[field] for row in problem.train_rows], generator)
        for field in problem.task.fields
    }
    return [
        Example({field: texts[field][number] for field in problem.task.fields}, "", source=f"in-domain text {number}")
        for number in range(NUM_TEXTS)
    ]


def _random_texts(texts: Sequence[str], generator: random.Random) -> list[str]:
    words = [word for text in texts for word in text.lower().split()]
    length = len(words) // len(texts) + 1
    return [" ".join([*generator.choices(words, k=length), "."]) for _ in range(NUM_TEXTS)]


METHODS = (
    method.on_states(
        "domain_context_calibration",
        "Domain-context calibration",
        lambda context, _: contextual_calibration.fitted(context, contextual_calibration.Settings(), domain_queries),
        source="Fei et al., ACL 2023, Section 5",
        needs=(domain_queries,),
        check=method.label_words_are_tokens,
        look=6,
    ),
)
