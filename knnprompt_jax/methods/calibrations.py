"""Calibrations: methods that correct the bias of the label words' probabilities.

Each uses log p of the label words [N, C] after the split's demonstrations. Contextual, domain-context and Batch
Calibration shift them by an estimated bias. Prototypical Calibration clusters them. LinC and vector scaling learn a map
from the labelled anchors.
"""

import functools
import random
import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import optimize, special

from knnprompt_jax.common import errors
from knnprompt_jax.common.options import Options, option
from knnprompt_jax.methods import method
from knnprompt_jax.tasks.task import Example

CONTENT_FREE_TEXTS = ("N/A", "", "[MASK]")
DOMAIN_TEXTS = 20
Array = jax.Array


class ContextualOptions(Options):
    """Options of contextual calibration."""

    prior: str = option(
        "balanced",
        "The prior of the classes: equal, or their shares of the split's train rows.",
        choices=("balanced", "trainset"),
    )


class PrototypicalOptions(Options):
    """Options of Prototypical Calibration."""

    restarts: int = option(100, "Mixtures to estimate; the one that matches the labels best is kept.", least=1)


class LincOptions(Options):
    """Options of LinC. The source tunes the learning rate and the epochs per task; the defaults are those for SST2."""

    epochs: int = option(15, "Passes over the rows.", least=1)
    learning_rate: float = option(0.015, "Learning rate of the gradient descent.", least=0)
    rows: int = option(100, "Maximum number of anchors to learn from.", least=1)


class SupervisedOptions(Options):
    """Options of vector scaling (after Supervised Calibration)."""

    penalty: float = option(1.0, "Strength of the regularisation towards slopes of 1 and shifts of 0.", least=1e-6)


def content_free_queries(problem: method.Problem) -> list[Example]:
    """Return queries without content: every field holds the same content-free text."""
    fields = problem.task.fields
    return [Example(dict.fromkeys(fields, text), "", place=f"content-free {text!r}") for text in CONTENT_FREE_TEXTS]


def domain_queries(problem: method.Problem) -> list[Example]:
    """Return queries of random in-domain words, drawn with the split's seed.

    Each text has as many words as the train rows' mean text. As in the released code, words are lower-cased and drawn
    with replacement, field by field, and a text ends in " .". A field that is empty in all train rows stays empty.
    """
    generator = random.Random(problem.split.seed)
    texts = {field: _domain_texts(problem.train_rows, field, generator) for field in problem.task.fields}
    return [
        Example({field: texts[field][number] for field in problem.task.fields}, "", place=f"in-domain text {number}")
        for number in range(DOMAIN_TEXTS)
    ]


CONTENT_FREE = method.PromptSet("content-free queries", content_free_queries)
IN_DOMAIN = method.PromptSet("in-domain queries", domain_queries)


def _domain_texts(rows: Sequence[Example], field: str, generator: random.Random) -> list[str]:
    """Return texts of random words of a field of the rows; "" if the field has no words."""
    words = [word for row in rows for word in row.fields[field].lower().split()]
    if not words:
        return [""] * DOMAIN_TEXTS
    length = len(words) // len(rows) + 1
    return [" ".join([*generator.choices(words, k=length), "."]) for _ in range(DOMAIN_TEXTS)]


def log_bias(log_p_NC: np.ndarray) -> np.ndarray:
    """Return log p_cf [C]: probabilities averaged over N content-free inputs, then normalised over the label words."""
    return special.log_softmax(special.logsumexp(log_p_NC, axis=0))


def contextual(inputs: method.Inputs, options: ContextualOptions) -> method.Prediction:
    """Divide the probabilities by those after content-free inputs.

    Zhao, Wallace, Feng, Klein, Singh: "Calibrate Before Use: Improving Few-Shot Performance of Language Models", ICML
    2021, Section 5: W = diag(p_cf)⁻¹, b = 0. The prior "trainset" multiplies by the classes' frequencies in the split.
    """
    shift_C = -log_bias(inputs.label_log_p(inputs.states[CONTENT_FREE]))
    if options.prior == "trainset":
        y = inputs.classes(inputs.problem.train_rows)
        with np.errstate(divide="ignore"):  # −∞, hence never predicted, for a class without train rows.
            shift_C += np.log(np.bincount(y, minlength=inputs.num_classes) / len(y))
    return method.Prediction.from_scores(inputs.label_log_p(inputs.states[method.QUERIES]) + shift_C)


def domain_context(inputs: method.Inputs, _: Options) -> method.Prediction:
    """Divide the probabilities by those after random in-domain texts.

    Fei, Hou, Chen, Bosselut: "Mitigating Label Biases for In-context Learning", ACL 2023, Section 5.
    """
    bias_C = log_bias(inputs.label_log_p(inputs.states[IN_DOMAIN]))
    return method.Prediction.from_scores(inputs.label_log_p(inputs.states[method.QUERIES]) - bias_C)


def batch(inputs: method.Inputs, _: Options) -> method.Prediction:
    """Subtract the mean log-probability over the queries.

    Zhou, Wan, Proleev, Mincu, Chen, Heller, Roy: "Batch Calibration: Rethinking Calibration for In-Context Learning and
    Prompt Engineering", 2023 (ICLR 2024), Section 3.
    """
    log_p_QC = inputs.label_log_p(inputs.states[method.QUERIES])
    return method.Prediction.from_scores(log_p_QC - log_p_QC.mean(0))


def prototypical(inputs: method.Inputs, options: PrototypicalOptions) -> method.Prediction:
    """Predict the label of the likeliest cluster of a Gaussian mixture over label words' log-probabilities.

    Han, Hao, Dong, Sun, Wei: "Prototypical Calibration for Few-shot Learning of Language Models", ICLR 2023, Section 3:
    one cluster per class, estimated by EM on the anchors without their labels. A maximum-weight bipartite matching
    assigns clusters to labels, with the cluster means as weights. The heaviest matching of many restarts is kept. As in
    the released code, there are 100 restarts, and all clusters have the same weight when a query is assigned.
    """
    from sklearn import exceptions, mixture

    log_p_NC = inputs.label_log_p(inputs.states[method.ANCHORS])
    seeds = np.random.default_rng(inputs.seed).integers(2**31, size=options.restarts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)  # Few or equal rows; the matching decides.
        mixtures = [mixture.GaussianMixture(inputs.num_classes, random_state=int(seed)).fit(log_p_NC) for seed in seeds]
    best = max(mixtures, key=lambda fitted: match(fitted.means_)[1])
    best.weights_ = np.full_like(best.weights_, 1 / inputs.num_classes)
    posterior_QC = best.predict_proba(inputs.label_log_p(inputs.states[method.QUERIES]))
    clusters_C, _ = match(best.means_)
    return method.Prediction.from_probabilities(posterior_QC[:, clusters_C])


def match(means_CC: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the cluster of each label and the weight of the matching, from `means_CC[cluster, label]`."""
    clusters, labels = optimize.linear_sum_assignment(means_CC, maximize=True)
    return clusters[np.argsort(labels)], float(means_CC[clusters, labels].sum())


def check_prototypical(problem: method.Problem, _: PrototypicalOptions) -> None:
    """Raise UserError if label words are not tokens, or if there are fewer anchors than clusters."""
    method.check_label_words_are_tokens(problem)
    anchors = len(problem.split.anchors)
    required = max(2, problem.task.num_classes)
    if anchors < required:
        message = f"Prototypical Calibration has {anchors} anchors and needs {required}: choose more shots"
        raise errors.UserError(message)


def linc(inputs: method.Inputs, options: LincOptions) -> method.Prediction:
    """Learn softmax(A p + b) on at most 100 labelled anchors, with p normalised over the label words.

    Abbas, Zhou, Ram, Baracaldo, Samulowitz, Salonidis, Chen: "Enhancing In-context Learning via Linear Probe
    Calibration", AISTATS 2024: stochastic gradient descent on the cross-entropy, one row at a time. As in the released
    code, A starts as contextual calibration's diag(p_cf)⁻¹ and b as 0.
    """
    p_NC = _label_probabilities(inputs, method.ANCHORS)[: options.rows]
    p_QC = _label_probabilities(inputs, method.QUERIES)
    bias_C = log_bias(inputs.label_log_p(inputs.states[CONTENT_FREE]))
    start = (jnp.diag(jnp.asarray(np.exp(-bias_C), jnp.float32)), jnp.zeros(inputs.num_classes))
    generator = np.random.default_rng(inputs.seed)
    order_T = np.concatenate([generator.permutation(len(p_NC)) for _ in range(options.epochs)])
    y_T = inputs.y.astype(np.int32)[order_T]
    slope_CC, shift_C = _descend(start, p_NC[order_T], y_T, options.learning_rate)
    return method.Prediction.from_scores(p_QC @ np.asarray(slope_CC).T + np.asarray(shift_C))


def _label_probabilities(inputs: method.Inputs, prompts: method.PromptSet) -> np.ndarray:
    """Return the probabilities of the label words [N, C], float32, normalised over them."""
    return special.softmax(inputs.label_log_p(inputs.states[prompts]), axis=-1).astype(np.float32)


@jax.jit
def _descend(start: tuple[Array, Array], p_TC: Array, y_T: Array, learning_rate: float) -> tuple[Array, Array]:
    """Take one gradient step per row, in the given order."""

    def loss(weights: tuple[Array, Array], p_C: Array, label: Array) -> Array:
        slope_CC, shift_C = weights
        return optax.softmax_cross_entropy_with_integer_labels(slope_CC @ p_C + shift_C, label)

    def step(weights: tuple[Array, Array], row: tuple[Array, Array]) -> tuple[tuple, None]:
        gradients = jax.grad(loss)(weights, *row)
        return jax.tree.map(lambda weight, gradient: weight - learning_rate * gradient, weights, gradients), None

    with jax.default_matmul_precision("highest"):
        return jax.lax.scan(step, start, (p_TC, y_T))[0]


def supervised(inputs: method.Inputs, options: SupervisedOptions) -> method.Prediction:
    """Learn a slope and a shift per class of the label words' log-probabilities on the anchors.

    Gundem, Dong, Zhang, Tarokh, Qi: "Boosting In-Context Learning in LLMs Through the Lens of Classical Supervised
    Learning", 2025 (arXiv 2505.23783). A slope can turn the boundary between two classes, or reverse it, where other
    calibrations shift it.

    No code is public; this follows the paper's abstract. The pseudo-queries are the split's anchors. The trust region
    is a penalty on the distance to the identity map. The context-invariance term is left out: all anchors share one
    context.
    """
    log_p_NC = special.log_softmax(inputs.label_log_p(inputs.states[method.ANCHORS]), axis=-1)
    log_p_QC = special.log_softmax(inputs.label_log_p(inputs.states[method.QUERIES]), axis=-1)
    slope_C, shift_C = fit_supervised(log_p_NC, inputs.y, options.penalty)
    return method.Prediction.from_scores(log_p_QC * slope_C + shift_C)


def fit_supervised(log_p_NC: np.ndarray, y: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the slopes w and shifts b [C] that minimise a convex loss.

    The loss is Σ −log softmax(w log p + b)_y + penalty / 2 · (Σ (w − 1)² + Σ b²).
    """
    num_classes = log_p_NC.shape[1]
    is_label_NC = np.eye(num_classes)[y]
    identity_2C = np.stack([np.ones(num_classes), np.zeros(num_classes)])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        map_2C = flat.reshape(2, -1)
        scores_NC = special.log_softmax(map_2C[0] * log_p_NC + map_2C[1], axis=-1)
        error_NC = np.exp(scores_NC) - is_label_NC
        change_2C = map_2C - identity_2C
        value = -(scores_NC * is_label_NC).sum() + penalty / 2 * (change_2C**2).sum()
        gradient_2C = np.stack([(error_NC * log_p_NC).sum(0), error_NC.sum(0)]) + penalty * change_2C
        return value, gradient_2C.ravel()

    best = optimize.minimize(loss, identity_2C.ravel(), jac=True, method="L-BFGS-B", options={"gtol": 1e-8})
    slope_C, shift_C = best.x.reshape(2, -1)
    return slope_C, shift_C


_calibration = functools.partial(method.Method, check=method.check_label_words_are_tokens)
_CONTEXTUAL = _calibration(
    "contextual_calibration",
    "Contextual calibration",
    contextual,
    ContextualOptions,
    needs=(method.QUERIES, CONTENT_FREE),
    rows_used="demonstrations",
    printed_as=("Contextual Calibration", "ContextualCalibration w/ Balanced Prior"),
)
METHODS = (
    _CONTEXTUAL,
    _CONTEXTUAL.variant(
        "contextual_calibration_trainset",
        "Contextual calibration, train prior",
        printed_as=("ContextualCalibration w/ Trainset Prior",),
        prior="trainset",
    ),
    _calibration(
        "domain_context_calibration", "Domain-context calibration", domain_context, needs=(method.QUERIES, IN_DOMAIN)
    ),
    _calibration("batch_calibration", "Batch Calibration", batch, needs=(method.QUERIES,), rows_used="demonstrations"),
    method.Method(
        "proca",
        "Prototypical Calibration",
        prototypical,
        PrototypicalOptions,
        needs=(method.QUERIES, method.ANCHORS),
        check=check_prototypical,
    ),
    _calibration("linc", "LinC", linc, LincOptions, needs=(method.QUERIES, method.ANCHORS, CONTENT_FREE)),
    _calibration(
        "supervised_calibration",
        "Vector scaling (after Supervised Calibration)",
        supervised,
        SupervisedOptions,
        needs=(method.QUERIES, method.ANCHORS),
    ),
)
