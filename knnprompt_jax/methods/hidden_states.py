"""Methods on hidden states: the nearest class mean of the last layer, and the last layer replaced by a chosen one.

Hidden Calibration: Cho, Sakai, Kato, Tanaka, Ishii, Inoue: "Token-based Decision Criteria Are Suboptimal in In-context
Learning", 2024 (NAACL 2025), Section 3: centroids of the last token's last hidden states, Euclidean distance.

Chosen layer: Skean, Arefin, Zhao, Patel, Naghiyev, LeCun, Shwartz-Ziv: "Layer by Layer: Uncovering Hidden Representations in
Language Models", ICML 2025 (arXiv 2502.02013): layers in the middle often have better features than the last. This follows its
abstract, which does not say how to choose a layer without test rows. Here it is the layer whose nearest class mean is right for
most anchors, each left out of its own class's mean; the last of equally good layers.
"""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
from scipy import special
from scipy.spatial import distance

from knnprompt_jax import errors, lm, options
from knnprompt_jax.methods import linear_probe, method
from knnprompt_jax.settings import methods
from knnprompt_jax.tasks.task import Example


def centroid_proba(anchors_NE: np.ndarray, y: np.ndarray, queries_QE: np.ndarray, num_classes: int) -> np.ndarray:
    """Return the softmax of the negative Euclidean distances to the class means [Q, C], as released.

    A class without anchors has probability 0.
    """
    anchors_NE, queries_QE = (hidden.astype(np.float64) for hidden in (anchors_NE, queries_QE))
    centroids_CE = np.full((num_classes, anchors_NE.shape[1]), np.inf)
    for label in np.unique(y):
        centroids_CE[label] = anchors_NE[y == label].mean(0)
    return special.softmax(-distance.cdist(queries_QE, centroids_CE), axis=-1)


def run_centroids(context: method.Context, _: options.Options) -> method.Prediction:
    """Predict the class with the nearest mean hidden state."""
    anchors_NE, queries_QE = (np.asarray(context.states[rows].hidden_NE) for rows in (method.anchors, method.queries))
    return method.Prediction.most_probable(centroid_proba(anchors_NE, context.y, queries_QE, context.num_classes))


def leave_one_out(hidden_NE: np.ndarray, y: np.ndarray) -> float:
    """Return the share of rows whose class has the nearest mean by Euclidean distance, each row left out of its mean.

    A row that is alone in its class counts as wrong. Ties go to the lowest class.
    """
    classes, y = np.unique(y, return_inverse=True)
    count_C = np.bincount(y)
    sum_CE = np.stack([hidden_NE[y == label].sum(0) for label in range(len(classes))])
    squared_NC = np.stack([((hidden_NE - mean_E) ** 2).sum(-1) for mean_E in sum_CE / count_C[:, None]], axis=-1)
    rows, left = np.arange(len(y)), count_C[y] - 1
    own_NE = (sum_CE[y] - hidden_NE) / np.maximum(left, 1)[:, None]
    squared_NC[rows, y] = np.where(left > 0, ((hidden_NE - own_NE) ** 2).sum(-1), np.inf)
    return float(np.mean(squared_NC.argmin(-1) == y))


def choose_layer(hidden_NLE: np.ndarray, y: np.ndarray) -> tuple[int, float]:
    """Return the layer, from 0, with the highest leave-one-out accuracy, and this accuracy."""
    accuracy_L = [leave_one_out(hidden_NLE[:, layer].astype(np.float64), y) for layer in range(hidden_NLE.shape[1])]
    return len(accuracy_L) - 1 - int(np.argmax(accuracy_L[::-1])), max(accuracy_L)


def run_layer(context: method.Context, settings: methods.LayerOptions) -> method.Prediction:
    """Read all layers of anchors and queries, and predict from the chosen layer; each text is read once."""
    problem, examples = context.problem, _texts(context.problem)
    texts = dataclasses.replace(problem, evaluation=list(examples.values()))
    prompts = texts.lay_out(problem.split.demonstrations, context.model.context)
    layers = tuple(range(1, context.model.config.num_layers + 1))
    by_layer = context.read(prompts, "all layers", layers).layers
    hidden_NLE = np.stack([np.asarray(by_layer[layer]) for layer in layers], 1)
    row_of = {text: row for row, text in enumerate(examples)}
    anchors_NLE, queries_QLE = (
        hidden_NLE[[row_of[problem.task.render(example)] for example in rows]]
        for rows in (problem.split.anchors, problem.evaluation)
    )
    layer, accuracy = choose_layer(anchors_NLE, context.y)
    anchors_NE, queries_QE = anchors_NLE[:, layer], queries_QLE[:, layer]
    if settings.classifier == "centroids":
        probabilities_QC = centroid_proba(anchors_NE, context.y, queries_QE, context.num_classes)
    else:
        probe = methods.ProbeOptions(inverse_penalty=settings.inverse_penalty)
        # A probe of hidden states does not read log Z, which inner layers do not have.
        anchors, queries = (lm.States(jnp.asarray(h), jnp.zeros(len(h))) for h in (anchors_NE, queries_QE))
        probabilities_QC = linear_probe.predict_proba(
            context.head, context.num_classes, probe, anchors, context.y, queries
        )
    note = f"layer {layer + 1} of {hidden_NLE.shape[1]}, leave-one-out accuracy of anchors {100 * accuracy:.0f} %"
    return method.Prediction.most_probable(probabilities_QC, note, [prompts])


def cost_layer(problem: method.Problem, reader: method.Reader, settings: methods.LayerOptions) -> method.Cost:
    """Estimate the cost of reading anchors and queries once more."""
    texts = list(_texts(problem))
    prefix = reader.demonstration_tokens(problem.task, problem.split.demonstrations)
    return method.Cost(len(texts), prefix + int(reader.lengths(texts).sum()))


def _texts(problem: method.Problem) -> dict[str, Example]:
    """Return an example for each distinct text of the anchors and queries."""
    return {problem.task.render(row): row for row in (*problem.split.anchors, *problem.evaluation)}


def check_layer(problem: method.Problem) -> None:
    """Raise UserError if there are no anchors."""
    if not problem.split.anchors:
        raise errors.UserError("there are no anchors: choose more shots")


_declare_layer = functools.partial(
    method.Method,
    run=run_layer,
    check=check_layer,
    cost=cost_layer,
    by_name="it reads all prompts again and keeps every layer: name the method to run it",
)
METHODS = (
    method.Method("hidden_centroids", "Hidden Calibration", run_centroids, needs=(method.queries, method.anchors)),
    _declare_layer("hidden_centroids_layer", "Hidden Calibration, chosen layer"),
    _declare_layer("linear_probe_layer", "Linear probe, chosen layer"),
)
