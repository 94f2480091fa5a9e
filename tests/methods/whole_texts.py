"""A small random GPT-2 with the shipped tokenizer, its plain computations on whole texts, and rows to classify."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from knnprompt_jax.inference import lm
from knnprompt_jax.methods import method
from knnprompt_jax.models import hub, registry, tokenizers
from knnprompt_jax.tasks import catalogue
from knnprompt_jax.tasks.splits import ClassCounts, FewShotSplit
from knnprompt_jax.tasks.task import Example, Task
from tests import random_weights

CONTEXT = 211
TREC = catalogue.get("trec")
SENTENCES = ["the film was a warm and quiet one", "rain all day"]
SENTENCES += ["nobody laughed , not even once , and the second half was worse than the first half of it"]
SENTENCES += ["a bridge of stone", "who wrote it ?", "cold soup again", ""]
SENTENCES += [
    "they sold four hundred of them in a week , to people who had never owned one before and never would again"
]
SENTENCES += ["it sings", "left on the shelf", "blue", "the score alone is reason enough to go"]


@functools.cache
def model() -> lm.LanguageModel:
    tokenizer = tokenizers.load(hub.locate("tiny"))
    sizes = {"n_embd": 14, "n_layer": 2, "n_head": 2, "n_inner": 19, "vocab_size": len(tokenizer)}
    shape = registry.config_from_hf({"model_type": "gpt2", "n_positions": CONTEXT, **sizes})
    weights = random_weights.make(shape, 0, (0.6, 0.5, 0.6))
    return lm.LanguageModel.from_decoder(weights, tokenizer, step_tokens=512)


def tokens(text: str) -> list[int]:
    return model().tokenizer(text)["input_ids"]


@functools.cache
def _reader() -> tuple:
    decoder = model().execution.decoder
    return jax.jit(decoder), np.asarray(decoder.head.rows_VE, np.float64)


def log_p(before: Sequence[int], after: Sequence[int]) -> np.ndarray:
    """Return log p of each token of `after`, from one plain causal pass over the whole text and a softmax in NumPy."""
    read, head_VE = _reader()
    whole = [*before, *after]
    hidden_TE = read(jnp.asarray([whole + [0] * (CONTEXT + 1 - len(whole))])[:, :CONTEXT])[0]
    logits_TV = np.asarray(hidden_TE[len(before) - 1 : len(whole) - 1], np.float64) @ head_VE.T
    return special.log_softmax(logits_TV, axis=-1)[np.arange(len(after)), list(after)]


def icl(problem: method.Problem, demonstrations: Sequence[Example], query: Example) -> np.ndarray:
    """Return label probabilities [C] after one whole prompt, which keeps its last tokens."""
    head = "".join(problem.task.render(row, row.label) + "\n" for row in demonstrations)
    before = tokens(head + problem.task.render(query))[-CONTEXT:]
    return special.softmax([log_p(before, [label])[0] for label in problem.label_tokens])


def make_problem(task: Task, demo_shots: int, anchor_shots: int, evaluation: Sequence[Example]) -> method.Problem:
    """Return a split of rows made up for the task, with its labels in turn."""
    shots = demo_shots + anchor_shots

    def rows(count: int, first: int) -> tuple[Example, ...]:
        return tuple(
            Example(dict.fromkeys(task.fields, f"{SENTENCES[row % len(SENTENCES)]} {row}"), label, row)
            for row, label in enumerate(task.labels * count, first)
        )

    counts = dict.fromkeys(task.labels, ClassCounts(shots, demo_shots, anchor_shots))
    split = FewShotSplit(rows(demo_shots, 0), rows(anchor_shots, 101), 1, shots, demo_shots, counts, ())
    return method.Problem(task, split, list(evaluation), model().tokenize)


def queries(task: Task, count: int) -> list[Example]:
    """Return rows to classify, labelled in turn: a short one, an empty one, and long ones."""
    return [
        Example(dict.fromkeys(task.fields, text), task.labels[row % task.num_classes], row)
        for row, text in enumerate(SENTENCES[5 : 5 + count])
    ]


def trec(demo_shots: int, anchor_shots: int) -> method.Problem:
    """Return a split of TREC and three rows to classify."""
    return make_problem(TREC, demo_shots, anchor_shots, queries(TREC, 3))
