"""Demonstration selection: in-context learning after the train rows most similar to the query.

Liu, Shen, Zhang, Dolan, Carin, Chen: "What Makes Good In-Context Examples for GPT-3?", DeeLIO 2022; PromptCompose in the paper. The
pool is the whole train sample of the split, demonstrations and anchors. Each query's prompt contains as many of its rows as the split has
demonstrations, whatever their classes: those with the highest cosine of sentence embeddings or the highest BM25 score.
"""

import functools
import importlib.util

import numpy as np

from knnprompt_jax import errors
from knnprompt_jax.methods import in_context, method
from knnprompt_jax.models import encoders
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import methods
from knnprompt_jax.tasks.task import Example


def nearest(similarities_QN: np.ndarray, count: int, order: str = "nearest_first") -> np.ndarray:
    """Return the indices of the `count` most similar texts per query [Q, count]; ties go to the lower index."""
    nearest_Qk = np.argsort(-similarities_QN, axis=-1, kind="stable")[:, :count]
    return nearest_Qk[:, ::-1] if order == "nearest_last" else nearest_Qk


def select(problem: method.Problem, settings: methods.RetrievalOptions) -> list[list[Example]]:
    """Return the demonstrations of each query, in the order of the prompt."""
    pool = problem.train_rows
    pool_texts, query_texts = (
        [problem.task.retrieval_text(example) for example in examples] for examples in (pool, problem.evaluation)
    )
    if settings.retriever == methods.BM25:
        import rank_bm25

        # Okapi BM25 of words separated by white space, case matters. An idf below zero becomes ε of the mean idf.
        index = rank_bm25.BM25Okapi([text.split() for text in pool_texts], k1=1.5, b=0.75, epsilon=0.25)
        similarities_QN = np.stack([index.get_scores(query.split()) for query in query_texts])
    else:
        pool_ND, queries_QD = (
            encoders.embed(settings.retriever, settings.pooling, texts) for texts in (pool_texts, query_texts)
        )
        similarities_QN = queries_QD @ pool_ND.T  # Cosines.
    count = problem.split.demo_shots * problem.task.num_classes
    return [[pool[index] for index in row] for row in nearest(similarities_QN, count, settings.order)]


def run(context: method.Context, settings: methods.RetrievalOptions) -> method.Prediction:
    """Select demonstrations and predict by in-context learning."""
    problem = context.problem
    demonstrations = select(problem, settings)
    prompts = layout.lay_out_each(
        *(problem.task, demonstrations, problem.evaluation, problem.tokenize),
        *(context.model.context, problem.truncation),
    )
    states = context.read(prompts, f"demonstrations by {settings.retriever}")
    probabilities_QC = in_context.predict_proba(context.head, states, context.label_ids)
    truncated = prompts.num_truncated
    note = f"{truncated} of {prompts.num_prompts} prompts truncated" if truncated else ""
    return method.Prediction.most_probable(probabilities_QC, note, [prompts])


def check(problem: method.Problem, retriever: str = "") -> None:
    """Raise UserError without demonstrations to select, with shared label tokens, or without the library for methods.BM25."""
    if retriever == methods.BM25 and importlib.util.find_spec("rank_bm25") is None:
        raise errors.UserError("it needs rank_bm25: pip install 'knnprompt_jax[methods]'")
    method.label_words_differ(problem)
    if problem.split.demo_shots < 1:
        raise errors.UserError("demo_shots=0 leaves no demonstrations to select: choose 1 or more")


def prepare(problem: method.Problem, settings: methods.RetrievalOptions) -> None:
    """Raise UserError if the retriever does not exist or cannot be loaded."""
    if settings.retriever == methods.BM25:
        check(problem, methods.BM25)
    else:
        encoders.describe(settings.retriever, settings.pooling)


def cost(problem: method.Problem, reader: method.Reader, _: methods.RetrievalOptions) -> method.Cost:
    """Estimate the cost of a whole prompt per query, about as long as with the split's demonstrations."""
    prefix = reader.demonstration_tokens(problem.task, problem.split.demonstrations)
    num_queries, suffixes = len(problem.evaluation), reader.query_tokens(problem.task, problem.evaluation)
    return method.Cost(num_queries, num_queries * min(reader.context, prefix + suffixes // num_queries))


def _declare(name: str, printed: str) -> method.Method:
    retriever = methods.METHODS[name]().to_dict()["retriever"]
    return method.Method(
        name,
        f"PromptCompose, {printed}",
        run,
        check=functools.partial(check, retriever=retriever),
        prepare=prepare,
        cost=cost,
        by_name=""
        if retriever == methods.BM25
        else "it needs a sentence encoder: name the method to download or load one",
        model_name=lambda settings: "" if settings.retriever == methods.BM25 else settings.retriever,
        printed_as=(printed,),
    )


# Reimers, Gurevych, EMNLP 2019; Gao, Yao, Chen, EMNLP 2021; Liu et al., "Trans-Encoder", ICLR 2022.
METHODS = (
    _declare("prompt_compose_bm25", "BM25"),
    _declare("prompt_compose_sbert", "SBERT"),
    _declare("prompt_compose_simcse", "SimCSE"),
    _declare("prompt_compose_trans_encoder", "Trans-Encoder"),
)
