"""In-context learning after other demonstrations than the split's: one selection per query, or other sets for all.

"prompt_compose_…" selects the train rows most similar to the query. Liu, Shen, Zhang, Dolan, Carin, Chen: "What Makes
Good In-Context Examples for GPT-3?", DeeLIO 2022; PromptCompose in the paper. The pool is the whole train sample of the
split, demonstrations and anchors. Each query's prompt contains as many of its rows as the split has demonstrations,
whatever their classes: those with the highest cosine of sentence embeddings or the highest BM25 score.

"icl_ensemble" combines the predictions after several disjoint sets. The paper (Section 4.2.2) cuts the m train rows per
class into sets of M_T and does not say how predictions are combined.

"icl_many_shot" fills the context with train rows in random order. Baek, Lee, Gupta, Oh, Dalmia, Kolhar: "Revisiting
In-Context Learning with Long Context Language Models", 2024 (arXiv 2412.16926): in long contexts, random demonstrations
do as well as selected ones. This follows the abstract, without the augmentation that makes more rows where the context
has room.

"demonstration_upper_bound" keeps the best of n random prompts, chosen on the evaluation rows. As in the paper (Section
4.3), it is a bound and no method: it reads the labels that it predicts.
"""

import collections
import importlib.util
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import special

from knnprompt_jax import errors
from knnprompt_jax.methods import method
from knnprompt_jax.models import encoders
from knnprompt_jax.prompts import layout
from knnprompt_jax.settings import methods
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.splits import FewShotSplit
from knnprompt_jax.tasks.task import Example


def select(problem: method.Problem, options: methods.RetrievalOptions) -> list[list[Example]]:
    """Return the demonstrations of each query, in the order of the prompt."""
    pool = problem.train_rows
    pool_texts = [problem.task.retrieval_text(example) for example in pool]
    query_texts = [problem.task.retrieval_text(example) for example in problem.evaluation]
    if options.retriever == methods.BM25:
        similarities_QN = _bm25(pool_texts, query_texts)
    else:
        pool_ND = encoders.embed(options.retriever, options.pooling, pool_texts)
        queries_QD = encoders.embed(options.retriever, options.pooling, query_texts)
        similarities_QN = queries_QD @ pool_ND.T  # Cosines.
    count = problem.split.demo_shots * problem.task.num_classes
    nearest_Qk = np.argsort(-similarities_QN, axis=-1, kind="stable")[:, :count]  # Ties go to the lower index.
    if options.order == "nearest_last":
        nearest_Qk = nearest_Qk[:, ::-1]
    return [[pool[index] for index in indices_k] for indices_k in nearest_Qk]


def _bm25(pool_texts: Sequence[str], query_texts: Sequence[str]) -> np.ndarray:
    """Return the Okapi BM25 scores [Q, N] of words separated by white space; case matters.

    An inverse document frequency below zero becomes ε of the mean one.
    """
    import rank_bm25

    index = rank_bm25.BM25Okapi([text.split() for text in pool_texts], k1=1.5, b=0.75, epsilon=0.25)
    return np.stack([index.get_scores(query.split()) for query in query_texts])


def predict_with_selection(inputs: method.Inputs, options: methods.RetrievalOptions) -> method.Prediction:
    """Select demonstrations and predict by in-context learning."""
    problem = inputs.problem
    prompts = layout.build_individual_prompts(
        problem.task,
        select(problem, options),
        problem.evaluation,
        problem.tokenize,
        inputs.model.context,
        problem.truncation,
    )
    states = inputs.read(prompts, f"demonstrations by {options.retriever}")
    truncated = prompts.num_truncated
    note = f"{truncated} of {prompts.num_prompts} prompts truncated" if truncated else ""
    return method.Prediction.most_probable(inputs.label_probabilities(states), note=note, sets=[prompts])


def check_selection(problem: method.Problem, options: methods.RetrievalOptions) -> None:
    """Raise UserError without demonstrations to select, with shared label tokens, or without the retriever."""
    check_demonstrations(problem)
    if options.retriever != methods.BM25:
        encoders.describe(options.retriever, options.pooling)
    elif importlib.util.find_spec("rank_bm25") is None:
        raise errors.UserError("it needs rank_bm25: pip install 'knnprompt_jax[methods]'")


def check_demonstrations(problem: method.Problem, _: Any = None) -> None:
    """Raise UserError without demonstrations to select or with shared label tokens."""
    method.check_label_words_differ(problem)
    if problem.split.demo_shots < 1:
        raise errors.UserError("demo_shots=0 leaves no demonstrations to select: choose 1 or more")


def cost_selection(problem: method.Problem, counter: method.TokenCounter, _: methods.RetrievalOptions) -> method.Cost:
    """Estimate the cost of a whole prompt per query, about as long as with the split's demonstrations."""
    num_queries = len(problem.evaluation)
    prefix = counter.demonstration_tokens(problem.task, problem.split.demonstrations)
    suffixes = counter.query_tokens(problem.task, problem.evaluation)
    return method.Cost(num_queries, num_queries * min(counter.context, prefix + suffixes // num_queries))


def ensemble_sets(split: FewShotSplit) -> list[list[Example]]:
    """Return the split's demonstrations, then the further sets that its anchors fill, with as many rows per class.

    A set takes the next rows of each class, in the order of the anchors. Rows that do not fill a set are dropped. A
    class without further rows is missing from later sets.
    """
    later: list[list[Example]] = [[] for _ in range(split.shots // split.demo_shots - 1)]
    num_seen: collections.Counter[str] = collections.Counter()
    for example in split.anchors:
        index = num_seen[example.label] // split.demo_shots
        num_seen[example.label] += 1
        if index < len(later):
            later[index].append(example)
    return [list(split.demonstrations), *(rows for rows in later if rows)]


def combine(log_p_UQC: np.ndarray, combination: str) -> np.ndarray:
    """Return class probabilities [Q, C] from the normalised log-probabilities of U predictions.

    "probability" is the mean of probabilities, "log_probability" the normalised mean of logarithms, "vote" the shares
    of the most probable classes.
    """
    if combination == "probability":
        return np.exp(special.logsumexp(log_p_UQC, axis=0) - np.log(len(log_p_UQC)))
    if combination == "log_probability":
        return special.softmax(log_p_UQC.mean(0), axis=-1)
    return np.eye(log_p_UQC.shape[-1])[log_p_UQC.argmax(-1)].mean(0)


def predict_by_ensemble(inputs: method.Inputs, options: methods.EnsembleOptions) -> method.Prediction:
    """Predict after each set and combine; the shared pass has read the queries after the split's demonstrations."""
    problem = inputs.problem
    first, *later = ensemble_sets(problem.split)
    sets = [problem.build_prompts(rows, problem.evaluation, inputs.model.context) for rows in later]
    all_states = [inputs.states[method.QUERIES], *inputs.read_sets(sets, "ICL ensemble")]
    log_p_UQC = np.array([inputs.label_log_p(states) for states in all_states])
    probabilities_QC = combine(special.log_softmax(log_p_UQC, axis=-1), options.combination)
    note = f"{len(all_states)} sets of {len(first)} demonstrations"
    return method.Prediction.most_probable(probabilities_QC, note=note, sets=sets)


def check_ensemble(problem: method.Problem, _: methods.EnsembleOptions) -> None:
    """Raise UserError if the shots do not make two sets, or if classes share a label token."""
    method.check_label_words_differ(problem)
    shots = problem.split.shots
    demo_shots = problem.split.demo_shots
    if demo_shots < 1:
        raise errors.UserError("demo_shots=0: an ensemble needs sets of demonstrations; choose 1 or more")
    if shots < 2 * demo_shots:
        raise errors.UserError(
            f"shots={shots}: two sets of demo_shots={demo_shots} need {2 * demo_shots} shots or more, "
            f"or demo_shots of {shots // 2} or fewer"
        )
    if not problem.split.anchors:
        raise errors.UserError("there are no anchors for a second set: choose more shots")


def cost_ensemble(problem: method.Problem, counter: method.TokenCounter, _: methods.EnsembleOptions) -> method.Cost:
    """Estimate the cost of reading all queries after each set besides the split's demonstrations."""
    return counter.cost(problem, problem.split.shots // problem.split.demo_shots - 1)


def many_shot_rows(
    problem: method.Problem, counter: method.TokenCounter, options: methods.ManyShotOptions
) -> list[Example]:
    """Shuffle the split's rows with its seed, and return the first ones that leave room for the longest query.

    Queries that do not fit even without demonstrations are ignored.
    """
    rows = problem.train_rows
    random.Random(problem.split.seed).shuffle(rows)
    rows = rows[: options.most or None]
    # One token more each: a blank line can become two tokens where demonstrations are joined.
    lengths = counter.lengths([layout.demonstration_text(problem.task, [row]) for row in rows]) + 1
    room = counter.context - problem.num_special
    queries = counter.lengths([problem.task.render(query) for query in problem.evaluation])
    longest = max(queries[queries <= room], default=0)
    count = int(np.searchsorted(np.cumsum(lengths), room - longest, side="right"))
    return rows[:count]


def predict_many_shot(inputs: method.Inputs, options: methods.ManyShotOptions) -> method.Prediction:
    """Predict by in-context learning after as many demonstrations as fit."""
    problem = inputs.problem
    counter = method.TokenCounter(inputs.model.count_tokens, inputs.model.context)
    rows = many_shot_rows(problem, counter, options)
    prompts = problem.build_prompts(rows, problem.evaluation, inputs.model.context)
    probabilities_QC = inputs.label_probabilities(inputs.read(prompts, "many shots"))
    return method.Prediction.most_probable(probabilities_QC, note=f"{len(rows)} demonstrations", sets=[prompts])


def cost_many_shot(
    problem: method.Problem, counter: method.TokenCounter, options: methods.ManyShotOptions
) -> method.Cost:
    """Estimate the cost of reading the demonstrations once, and all queries."""
    prefix = counter.demonstration_tokens(problem.task, many_shot_rows(problem, counter, options))
    return method.Cost(len(problem.evaluation), prefix + counter.query_tokens(problem.task, problem.evaluation))


def random_sets(problem: method.Problem, num_prompts: int) -> Iterator[list[Example]]:
    """Yield the demonstrations of each random prompt, as many per class as the split's, in random order.

    The demonstrations depend on the split's seed. A larger `num_prompts` begins with the same prompts.
    """
    generator = random.Random(problem.split.seed)
    classes = splits.group_by_class(problem.train_rows).values()
    for _ in range(num_prompts):
        sample = splits.sample_by_class(classes, problem.split.demo_shots, generator)
        generator.shuffle(sample)
        yield sample


def predict_upper_bound(inputs: method.Inputs, options: methods.UpperBoundOptions) -> method.Prediction:
    """Predict with each prompt and keep the most accurate; ties go to the first."""
    problem = inputs.problem
    true_Q = inputs.classes(problem.evaluation)
    sets = [
        problem.build_prompts(rows, problem.evaluation, inputs.model.context)
        for rows in random_sets(problem, options.num_prompts)
    ]
    accuracies: list[float] = []
    best_QC = np.zeros((len(true_Q), inputs.num_classes))
    for states in inputs.read_sets(sets, "upper bound"):
        probabilities_QC = inputs.label_probabilities(states)
        accuracy = float(np.mean(probabilities_QC.argmax(-1) == true_Q))
        if accuracy > max(accuracies, default=-1.0):
            best_QC = probabilities_QC
        accuracies.append(accuracy)
    note = f"best of {options.num_prompts} random prompts, CHOSEN ON THE EVALUATION ROWS, hence optimistic"
    return method.Prediction.most_probable(best_QC, note=note, candidates=tuple(accuracies), sets=sets)


def cost_upper_bound(
    problem: method.Problem, counter: method.TokenCounter, options: methods.UpperBoundOptions
) -> method.Cost:
    """Estimate the cost of reading all queries after each random prompt."""
    return counter.cost(problem, options.num_prompts)


def retriever_model(options: methods.RetrievalOptions) -> str:
    """Return the name of the sentence encoder that selects; "" for BM25."""
    return "" if options.retriever == methods.BM25 else options.retriever


METHODS = (
    *method.declare(
        "icl_ensemble", predict_by_ensemble, needs=(method.QUERIES,), check=check_ensemble, cost=cost_ensemble
    ),
    *method.declare("icl_many_shot", predict_many_shot, check=method.check_label_words_differ, cost=cost_many_shot),
    *method.declare(
        "demonstration_upper_bound",
        predict_upper_bound,
        check=check_demonstrations,
        cost=cost_upper_bound,
        rows_used="draws",
    ),
    *method.declare(
        "prompt_compose", predict_with_selection, check=check_selection, cost=cost_selection, model_name=retriever_model
    ),
)
