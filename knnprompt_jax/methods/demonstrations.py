"""In-context learning after other demonstrations than the split's: one selection per query, or other sets for all.

"prompt_compose_…" selects the train rows most similar to the query. Liu, Shen, Zhang, Dolan, Carin, Chen: "What Makes
Good In-Context Examples for GPT-3?", DeeLIO 2022; PromptCompose in the paper. The pool is the whole train sample of the
split, demonstrations and anchors. Each query's prompt contains as many of its rows as the split has demonstrations,
whatever their classes: those with the highest cosine of sentence embeddings or the highest BM25 score.

"icl_ensemble" combines the predictions after several disjoint sets. The paper (Section 4.2.2) cuts the m train rows per
class into sets of M_T and does not say how predictions are combined; this averages probabilities.

"icl_many_shot" fills the context with train rows in random order. Baek, Lee, Gupta, Oh, Dalmia, Kolhar: "Revisiting
In-Context Learning with Long Context Language Models", 2024 (arXiv 2412.16926): in long contexts, random demonstrations
do as well as selected ones. This follows the abstract, without the augmentation that makes more rows where the context
has room.

"demonstration_upper_bound" keeps the best of n random prompts, chosen on the evaluation rows. As in the paper (Section
4.3), it is a bound and no method: it reads the labels that it predicts.
"""

import collections
import functools
import importlib.util
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy import special

from knnprompt_jax.common import errors
from knnprompt_jax.common.options import Options, option
from knnprompt_jax.inference.prompts import layout
from knnprompt_jax.methods import baselines, method
from knnprompt_jax.models import encoders
from knnprompt_jax.tasks import splits
from knnprompt_jax.tasks.splits import FewShotSplit
from knnprompt_jax.tasks.task import Example

BM25 = "bm25"


class RetrievalOptions(Options):
    """Options of the selection. Long prompts lose their first demonstration first."""

    retriever: str = option(BM25, "bm25, or a sentence encoder by Hub name or folder.", nonempty=True)


class UpperBoundOptions(Options):
    """Options of the search for the best prompt."""

    num_prompts: int = option(1000, "Number of random prompts to try.", least=1)


def select(problem: method.Problem, options: RetrievalOptions) -> list[list[Example]]:
    """Return the demonstrations of each query, the most similar first."""
    pool = problem.train_rows
    pool_texts = [problem.task.retrieval_text(example) for example in pool]
    query_texts = [problem.task.retrieval_text(example) for example in problem.evaluation]
    if options.retriever == BM25:
        similarities_QN = _bm25(pool_texts, query_texts)
    else:
        pool_ND = encoders.embed(options.retriever, pool_texts)
        queries_QD = encoders.embed(options.retriever, query_texts)
        similarities_QN = queries_QD @ pool_ND.T  # Cosines.
    count = problem.split.demo_shots * problem.task.num_classes
    nearest_Qk = np.argsort(-similarities_QN, axis=-1, kind="stable")[:, :count]  # Ties go to the lower index.
    return [[pool[index] for index in indices_k] for indices_k in nearest_Qk]


def _bm25(pool_texts: Sequence[str], query_texts: Sequence[str]) -> np.ndarray:
    """Return the Okapi BM25 scores [Q, N] of words separated by white space; case matters.

    An inverse document frequency below zero becomes ε of the mean one.
    """
    import rank_bm25

    index = rank_bm25.BM25Okapi([text.split() for text in pool_texts], k1=1.5, b=0.75, epsilon=0.25)
    return np.stack([index.get_scores(query.split()) for query in query_texts])


def predict_with_selection(inputs: method.Inputs, options: RetrievalOptions) -> method.Prediction:
    """Select demonstrations and predict by in-context learning."""
    problem = inputs.problem
    selected = select(problem, options)
    context = inputs.model.context
    prompts = layout.build_individual_prompts(problem.task, selected, problem.evaluation, problem.tokenize, context)
    [states] = inputs.read_sets([prompts], f"demonstrations by {options.retriever}")
    return method.Prediction.from_probabilities(inputs.label_probabilities(states), sets=[prompts])


def check_sets(problem: method.Problem, number: int) -> None:
    """Raise UserError if the shots do not make this number of sets, or if classes share a label token."""
    method.check_label_words_differ(problem)
    split = problem.split
    if not 1 <= split.demo_shots <= split.shots // number:
        advice = f"of the {split.shots} shots, choose from 1 to {split.shots // number} ({number} or more sets)"
        raise errors.UserError(f"demo_shots={split.demo_shots}: {advice}")


def check_selection(problem: method.Problem, options: RetrievalOptions) -> None:
    """Raise UserError without demonstrations to select, with shared label tokens, or without the library for BM25."""
    check_sets(problem, 1)
    if options.retriever == BM25 and importlib.util.find_spec("rank_bm25") is None:
        raise errors.UserError("it needs rank_bm25: pip install 'knnprompt_jax[methods]'")


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


def predict_by_ensemble(inputs: method.Inputs, _: Options) -> method.Prediction:
    """Average the probabilities after each set; the shared pass has read the queries after the first one."""
    problem = inputs.problem
    first, *later = ensemble_sets(problem.split)
    sets = [problem.build_prompts(rows, problem.evaluation, inputs.model.context) for rows in later]
    all_states = [inputs.states[method.QUERIES], *inputs.read_sets(sets, "ICL ensemble")]
    p_UQC = special.softmax([inputs.label_log_p(states) for states in all_states], axis=-1)
    note = f"{len(all_states)} sets of {len(first)} demonstrations"
    return method.Prediction.from_probabilities(p_UQC.mean(0), note=note, sets=sets)


def many_shot_rows(
    problem: method.Problem, count_tokens: Callable[[Sequence[str]], np.ndarray], context: int
) -> list[Example]:
    """Shuffle the split's rows with its seed, and return the first ones that leave room for the longest query.

    Queries that do not fit even without demonstrations are ignored.

    Args:
        count_tokens: maps texts to their numbers of tokens, without special tokens.
        context: the number of tokens that the model can read.
    """
    rows = problem.train_rows
    random.Random(problem.split.seed).shuffle(rows)
    # One token more each: a blank line can become two tokens where demonstrations are joined.
    lengths = count_tokens([layout.demonstration_text(problem.task, [row]) for row in rows]) + 1
    room = context - len(problem.tokenize([""])[0])  # Without the special tokens before a text.
    queries = count_tokens([problem.task.render(query) for query in problem.evaluation])
    longest = max(queries[queries <= room], default=0)
    count = int(np.searchsorted(np.cumsum(lengths), room - longest, side="right"))
    return rows[:count]


def predict_many_shot(inputs: method.Inputs, _: Options) -> method.Prediction:
    """Predict by in-context learning after as many demonstrations as fit."""
    problem = inputs.problem
    rows = many_shot_rows(problem, inputs.model.count_tokens, inputs.model.context)
    prompts = problem.build_prompts(rows, problem.evaluation, inputs.model.context)
    [states] = inputs.read_sets([prompts], "many shots")
    probabilities_QC = inputs.label_probabilities(states)
    return method.Prediction.from_probabilities(probabilities_QC, note=f"{len(rows)} demonstrations", sets=[prompts])


def random_sets(problem: method.Problem, num_prompts: int) -> Iterator[list[Example]]:
    """Yield the demonstrations of each random prompt, as many per class as the split's, in random order.

    The demonstrations depend on the split's seed. A larger `num_prompts` begins with the same prompts.
    """
    generator = random.Random(problem.split.seed)
    classes = splits.group_by("label", problem.train_rows).values()
    for _ in range(num_prompts):
        sample = splits.sample_by_class(classes, problem.split.demo_shots, generator)
        generator.shuffle(sample)
        yield sample


def predict_upper_bound(inputs: method.Inputs, options: UpperBoundOptions) -> method.Prediction:
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
    return method.Prediction.from_probabilities(best_QC, note=note, candidates=tuple(accuracies), sets=sets)


_SELECTION = method.Method(
    "prompt_compose",
    "PromptCompose",
    predict_with_selection,
    RetrievalOptions,
    check=check_selection,
    model_name=lambda options: "" if options.retriever == BM25 else options.retriever,
    excluded_because="it selects by --prompt_compose.retriever: name the method to run it",
)
_with_encoder = functools.partial(_SELECTION.variant, excluded_because=baselines.NEEDS_ENCODER)
METHODS = (
    method.Method(
        "icl_ensemble",
        "ICL ensemble",
        predict_by_ensemble,
        needs=(method.QUERIES,),
        check=lambda problem, _: check_sets(problem, 2),
        printed_as=("ICL Ensemble",),
    ),
    method.Method(
        "icl_many_shot",
        "Many-shot in-context learning",
        predict_many_shot,
        check=method.check_label_words_differ,
        excluded_because="it fills the context with demonstrations: name the method to run it",
    ),
    method.Method(
        "demonstration_upper_bound",
        "Demonstration selection, upper bound",
        predict_upper_bound,
        UpperBoundOptions,
        check=lambda problem, _: check_sets(problem, 1),
        rows_used="random",
        printed_as=("DemonSelection (upper)",),
        excluded_because="it reads the evaluation rows after a thousand prompts: name the method to run it",
    ),
    _SELECTION,
    _SELECTION.variant("prompt_compose_bm25", "PromptCompose, BM25", printed_as=("BM25",), retriever=BM25),
    # Reimers, Gurevych, EMNLP 2019; Gao, Yao, Chen, EMNLP 2021; Liu et al., "Trans-Encoder", ICLR 2022.
    _with_encoder("prompt_compose_sbert", "PromptCompose, SBERT", printed_as=("SBERT",), retriever=baselines.MINILM),
    _with_encoder(
        "prompt_compose_simcse",
        "PromptCompose, SimCSE",
        printed_as=("SimCSE",),
        retriever="princeton-nlp/unsup-simcse-bert-base-uncased",
    ),
    _with_encoder(
        "prompt_compose_trans_encoder",
        "PromptCompose, Trans-Encoder",
        printed_as=("Trans-Encoder",),
        retriever="cambridgeltl/trans-encoder-bi-simcse-bert-base",
    ),
)
