"""Demonstration selection: in-context learning after the train rows most like the query.

Liu, Shen, Zhang, Dolan, Carin, Chen: "What Makes Good In-Context Examples for GPT-3?", DeeLIO 2022; PromptCompose in the
paper. The pool is the whole train sample of the split, demonstrations and anchors; of it, as many rows as the split has
demonstrations, whatever their classes, nearest in cosine of sentence embeddings or best by BM25, make the query's prompt.
"""

from collections.abc import Sequence

import numpy as np

from knnprompt_jax import errors, progress
from knnprompt_jax.methods import method, variants
from knnprompt_jax.models import encoders
from knnprompt_jax.prompts import individual
from knnprompt_jax.tasks.task import Example

BM25 = "bm25"
ORDERS = ("nearest_first", "nearest_last")


def bm25_scores(pool: Sequence[str], queries: Sequence[str]) -> np.ndarray:
    """Okapi BM25 of each text of the pool for each query [Q, N], words being what white space separates, case kept.

    k1 = 1.5, b = 0.75; an idf below zero becomes ε = 0.25 of the mean idf.
    """
    import rank_bm25

    index = rank_bm25.BM25Okapi([text.split() for text in pool], k1=1.5, b=0.75, epsilon=0.25)
    return np.stack([index.get_scores(query.split()) for query in queries])


def cosines(encoder: encoders.SentenceEncoder, pool: Sequence[str], queries: Sequence[str]) -> np.ndarray:
    """Cosine similarity [Q, N] of each query with each text of the pool."""
    pool_ND, queries_QD = (np.asarray(encoders.unit(encoder.encode(texts))) for texts in (pool, queries))
    return queries_QD @ pool_ND.T


def nearest(similarities_QN: np.ndarray, count: int, order: str = "nearest_first") -> np.ndarray:
    """The `count` most similar members of the pool for each query [Q, count]; of equal ones the earlier are nearer.

    `order` is one of `ORDERS`.
    """
    nearest_Qk = np.argsort(-similarities_QN, axis=-1, kind="stable")[:, :count]
    return nearest_Qk[:, ::-1] if order == "nearest_last" else nearest_Qk


def select(
    problem: method.Problem, *, retriever: str = BM25, pooling: str = "", order: str = "nearest_first"
) -> list[list[Example]]:
    """The demonstrations of each of the problem's queries, in the order in which they are shown.

    Args:
      retriever: "bm25", or a sentence encoder by Hub name or folder.
      pooling: of an encoder that does not say how it pools: "mean" or "cls".
      order: of `ORDERS`. The last demonstration is closest to the query, and the first is cut first.
    """
    pool = [*problem.split.demonstrations, *problem.split.anchors]
    pool_texts, query_texts = (
        [problem.task.retrieval_text(example) for example in examples] for examples in (pool, problem.evaluation)
    )
    if retriever == BM25:
        similarities_QN = bm25_scores(pool_texts, query_texts)
    else:
        similarities_QN = cosines(encoders.SentenceEncoder.from_pretrained(retriever, pooling), pool_texts, query_texts)
    count = problem.split.demo_shots * problem.task.num_classes
    return [[pool[index] for index in row] for row in nearest(similarities_QN, count, order)]


def run(
    context: method.Context,
    *,
    retriever: str,
    pooling: str = "",
    order: str = "nearest_first",
) -> method.Prediction:
    """Selects demonstrations and predicts by in-context learning, in a pass of its own."""
    problem, model = context.problem, context.model
    chosen = select(problem, retriever=retriever, pooling=pooling, order=order)
    prompts = individual.lay_out(
        problem.task, chosen, problem.evaluation, problem.tokenize, model.context, problem.truncation
    )
    with progress.bar(prompts.num_prompts, f"seed {context.seed}, demonstrations by {retriever}") as report:
        states = model.states(prompts, progress=report)[:]  # Whole on every device.
    probabilities_QC = variants.fitted_icl(context).predict_proba(states)
    note = f"{prompts.num_truncated} of {prompts.num_prompts} prompts truncated" if prompts.num_truncated else ""
    return method.Prediction(probabilities_QC.argmax(-1), probabilities_QC, note, truncated=prompts.num_truncated)


def check(problem: method.Problem) -> None:
    """Raises UserError where there is no place for a demonstration, or where classes share a label token."""
    method.label_words_differ(problem)
    if problem.split.demo_shots < 1:
        raise errors.UserError("demo_shots=0 leaves no demonstrations to select: choose 1 or more")


def check_bm25(problem: method.Problem) -> None:
    """As `check`; and raises UserError where the library that ranks is not installed."""
    method.check_package("rank_bm25")
    check(problem)


def prepare(problem: method.Problem, *, retriever: str, pooling: str, order: str) -> None:
    """Raises UserError on an unknown order, and where the encoder is none or cannot be had."""
    del problem
    if order not in ORDERS:
        raise errors.UserError(f"order={order!r}: choose from {', '.join(ORDERS)}")
    if retriever == BM25:
        method.check_package("rank_bm25")
    else:
        encoders.describe(retriever, pooling)


def _method(name: str, title: str, retriever: str) -> method.Method:
    options = {"retriever": retriever, "pooling": "", "order": ORDERS[0]}
    own_check = check_bm25 if retriever == BM25 else check
    by_name = "" if retriever == BM25 else "it needs a sentence encoder: name the method to fetch or give one"
    return method.Method(name, title, run, options=options, check=own_check, prepare=prepare, by_name=by_name)


METHODS = (
    _method("prompt_compose_bm25", "PromptCompose, BM25", BM25),
    _method("prompt_compose_sbert", "PromptCompose, SBERT", "sentence-transformers/all-MiniLM-L6-v2"),
    _method("prompt_compose_simcse", "PromptCompose, SimCSE", "princeton-nlp/unsup-simcse-bert-base-uncased"),
    _method(
        "prompt_compose_trans_encoder",
        "PromptCompose, Trans-Encoder",
        "cambridgeltl/trans-encoder-bi-simcse-bert-base",
    ),
)
