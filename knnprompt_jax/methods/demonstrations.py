"""In-context learning after other demonstrations than the split's: selected for each query, or other sets for all queries.

"prompt_compose_…" selects the train rows most similar to the query. Liu, Shen, Zhang, Dolan, Carin, Chen: "What Makes Good
In-Context Examples for GPT-3?", DeeLIO 2022; PromptCompose in the paper. The pool is the whole train sample of the split,
demonstrations and anchors. Each query's prompt contains as many of its rows as the split has demonstrations, whatever their
classes: those with the highest cosine of sentence embeddings or the highest BM25 score.

"icl_ensemble" combines the predictions after several disjoint sets. The paper (Section 4.2.2) cuts the m train rows per class into sets
of M_T and does not say how predictions are combined.

"icl_many_shot" fills the context with train rows in random order. Baek, Lee, Gupta, Oh, Dalmia, Kolhar: "Revisiting In-Context
Learning with Long Context Language Models", 2024 (arXiv 2412.16926): in long contexts, random demonstrations do as well as selected
ones. This follows the abstract, without the augmentation that makes more rows where the context has room.

"demonstration_upper_bound" keeps the best of n random prompts, chosen on the evaluation rows. As in the paper (Section 4.3), it is a bound
and no method: it reads the labels that it predicts.
"""

import collections
import functools
import importlib.util
import random
from collections.abc import Iterator

import numpy as np
from scipy import special

from knnprompt_jax import errors
from knnprompt_jax.methods import method
from knnprompt_jax.models import encoders
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import methods
from knnprompt_jax.store import representations
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.splits import FewShotSplit
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


def run_selection(context: method.Context, settings: methods.RetrievalOptions) -> method.Prediction:
    """Select demonstrations and predict by in-context learning."""
    problem = context.problem
    demonstrations = select(problem, settings)
    prompts = layout.build_individual_prompts(
        *(problem.task, demonstrations, problem.evaluation, problem.tokenize),
        *(context.model.context, problem.truncation),
    )
    states = context.read(prompts, f"demonstrations by {settings.retriever}")
    probabilities_QC = context.label_probabilities(states)
    truncated = prompts.num_truncated
    note = f"{truncated} of {prompts.num_prompts} prompts truncated" if truncated else ""
    return method.Prediction.most_probable(probabilities_QC, note, [prompts])


def check_selection(problem: method.Problem, settings: methods.RetrievalOptions) -> None:
    """Raise UserError without demonstrations to select, with shared label tokens, or without the retriever."""
    _check_demonstrations(problem)
    if settings.retriever != methods.BM25:
        encoders.describe(settings.retriever, settings.pooling)
    elif importlib.util.find_spec("rank_bm25") is None:
        raise errors.UserError("it needs rank_bm25: pip install 'knnprompt_jax[methods]'")


def check_upper_bound(problem: method.Problem, _: methods.UpperBoundOptions) -> None:
    """Raise UserError without demonstrations to select or with shared label tokens."""
    _check_demonstrations(problem)


def _check_demonstrations(problem: method.Problem) -> None:
    method.check_label_words_differ(problem)
    if problem.split.demo_shots < 1:
        raise errors.UserError("demo_shots=0 leaves no demonstrations to select: choose 1 or more")


def cost_selection(problem: method.Problem, counter: method.TokenCounter, _: methods.RetrievalOptions) -> method.Cost:
    """Estimate the cost of a whole prompt per query, about as long as with the split's demonstrations."""
    prefix = counter.demonstration_tokens(problem.task, problem.split.demonstrations)
    num_queries, suffixes = len(problem.evaluation), counter.query_tokens(problem.task, problem.evaluation)
    return method.Cost(num_queries, num_queries * min(counter.context, prefix + suffixes // num_queries))


def ensemble_sets(split: FewShotSplit) -> list[list[Example]]:
    """Return the split's demonstrations, then as many sets of its anchors as its shots allow, with as many rows per class.

    A set takes the next rows of each class, in the order of the anchors. Rows that do not fill a set are dropped. A class without
    further rows is missing from later sets.
    """
    sets: list[list[Example]] = [[] for _ in range(split.shots // split.demo_shots - 1)]
    seen: collections.Counter[str] = collections.Counter()
    for example in split.anchors:
        number = seen[example.label] // split.demo_shots
        seen[example.label] += 1
        if number < len(sets):
            sets[number].append(example)
    return [list(split.demonstrations), *filter(None, sets)]


def combine(log_p_UQC: np.ndarray, combination: str) -> np.ndarray:
    """Return class probabilities [Q, C] from the normalised log-probabilities of U predictions.

    "probability" is the mean of probabilities, "log_probability" the normalised mean of logarithms, "vote" the shares of the most
    probable classes.
    """
    if combination == "probability":
        return np.exp(special.logsumexp(log_p_UQC, axis=0) - np.log(len(log_p_UQC)))
    if combination == "log_probability":
        return special.softmax(log_p_UQC.mean(0), axis=-1)
    return np.eye(log_p_UQC.shape[-1])[log_p_UQC.argmax(-1)].mean(0)


def run_ensemble(context: method.Context, settings: methods.EnsembleOptions) -> method.Prediction:
    """Predict after each set and combine; the shared pass has read the queries after the split's demonstrations."""
    first, *later = ensemble_sets(context.problem.split)
    sets = [context.problem.build_prompts(demonstrations, context.model.context) for demonstrations in later]
    read = [context.states[method.queries], *context.read_sets(sets, "ICL ensemble")]
    log_p_UQC = [representations.label_log_probabilities(context.head, states, context.label_ids) for states in read]
    probabilities_QC = combine(special.log_softmax(np.asarray(log_p_UQC, np.float64), axis=-1), settings.combination)
    return method.Prediction.most_probable(probabilities_QC, f"{len(read)} sets of {len(first)} demonstrations", sets)


def check_ensemble(problem: method.Problem, _: methods.EnsembleOptions) -> None:
    """Raise UserError if the shots do not make two sets, or if classes share a label token."""
    method.check_label_words_differ(problem)
    shots, demo_shots = problem.split.shots, problem.split.demo_shots
    if demo_shots < 1:
        raise errors.UserError("demo_shots=0: an ensemble needs sets of demonstrations; choose 1 or more")
    if shots < 2 * demo_shots:
        raise errors.UserError(
            f"shots={shots}: two sets of demo_shots={demo_shots} need {2 * demo_shots} shots or more, "
            f"or demo_shots of {shots // 2} or fewer"
        )
    if not problem.split.anchors:
        raise errors.UserError("there are no anchors for a second set: choose more shots")


def many_shot_rows(
    problem: method.Problem, counter: method.TokenCounter, settings: methods.ManyShotOptions
) -> list[Example]:
    """Shuffle the split's rows with its seed, and return the first ones, which leave room for the longest query.

    Queries that do not fit even alone are ignored.
    """
    rows = problem.train_rows
    random.Random(problem.split.seed).shuffle(rows)
    rows = rows[: settings.most or None]
    # One token more each: a blank line can become two tokens where demonstrations are joined.
    lengths = counter.lengths([layout.demonstration_text(problem.task, [row]) for row in rows]) + 1
    room = counter.context - problem.num_special
    queries = counter.lengths([problem.task.render(query) for query in problem.evaluation])
    longest = max(queries[queries <= room], default=0)
    return rows[: int(np.searchsorted(np.cumsum(lengths), room - longest, side="right"))]


def run_many_shot(context: method.Context, settings: methods.ManyShotOptions) -> method.Prediction:
    """Predict by in-context learning after as many demonstrations as fit."""
    problem, model = context.problem, context.model
    counter = method.TokenCounter(functools.partial(layout.count_tokens, problem.tokenize), model.context)
    rows = many_shot_rows(problem, counter, settings)
    prompts = problem.build_prompts(rows, model.context)
    probabilities_QC = context.label_probabilities(context.read(prompts, "many shots"))
    return method.Prediction.most_probable(probabilities_QC, f"{len(rows)} demonstrations", [prompts])


def cost_many_shot(
    problem: method.Problem, counter: method.TokenCounter, settings: methods.ManyShotOptions
) -> method.Cost:
    """Estimate the cost of reading the demonstrations once, and all queries."""
    prefix = counter.demonstration_tokens(problem.task, many_shot_rows(problem, counter, settings))
    return method.Cost(len(problem.evaluation), prefix + counter.query_tokens(problem.task, problem.evaluation))


def random_sets(problem: method.Problem, num_prompts: int) -> Iterator[list[Example]]:
    """Yield the demonstrations of each random prompt, as many per class as the split's, in random order.

    They depend on the split's seed; the first of many prompts are the same as those of few.
    """
    generator = random.Random(problem.split.seed)
    classes = splits.group_by_class(problem.train_rows).values()
    for _ in range(num_prompts):
        sample = splits.sample_by_class(classes, problem.split.demo_shots, generator)
        generator.shuffle(sample)
        yield sample


def run_upper_bound(context: method.Context, settings: methods.UpperBoundOptions) -> method.Prediction:
    """Predict with each prompt and keep the most accurate; ties go to the first."""
    problem, true_Q = context.problem, context.classes(context.problem.evaluation)
    sets = [problem.build_prompts(rows, context.model.context) for rows in random_sets(problem, settings.num_prompts)]
    accuracies: list[float] = []
    best_QC = np.zeros((len(true_Q), context.num_classes))
    for states in context.read_sets(sets, "upper bound"):
        probabilities_QC = context.label_probabilities(states)
        accuracies.append(float(np.mean(probabilities_QC.argmax(-1) == true_Q)))
        if accuracies[-1] > max(accuracies[:-1], default=-1.0):
            best_QC = probabilities_QC
    note = f"best of {settings.num_prompts} random prompts, CHOSEN ON THE EVALUATION ROWS, hence optimistic"
    return method.Prediction.most_probable(best_QC, note, sets, candidates=tuple(accuracies))


METHODS = (
    *method.declare(
        "icl_ensemble",
        run_ensemble,
        needs=(method.queries,),
        check=check_ensemble,
        cost=lambda problem, counter, _: counter.cost(problem, problem.split.shots // problem.split.demo_shots - 1),
    ),
    *method.declare("icl_many_shot", run_many_shot, check=method.check_label_words_differ, cost=cost_many_shot),
    *method.declare(
        "demonstration_upper_bound",
        run_upper_bound,
        check=check_upper_bound,
        cost=lambda problem, counter, settings: counter.cost(problem, settings.num_prompts),
        rows_used="draws",
    ),
    *method.declare(
        "prompt_compose",
        run_selection,
        check=check_selection,
        cost=cost_selection,
        model_name=lambda settings: "" if settings.retriever == methods.BM25 else settings.retriever,
    ),
)
