"""Methods on hidden states of the layer that tells the train rows' classes apart best, in the place of the last.

Skean, Arefin, Zhao, Patel, Naghiyev, LeCun, Shwartz-Ziv: "Layer by Layer: Uncovering Hidden Representations in Language Models",
ICML 2025 (arXiv 2502.02013): layers in the middle often hold better features than the last. This is a reading of its abstract, which does
not say how to choose one without test rows: here it is the layer whose nearest class mean is right for most anchors, each left out of its
class's mean; of equally good ones the last.
"""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np

from knnprompt_jax import errors, lm, options, progress
from knnprompt_jax.lm import layers
from knnprompt_jax.methods import base, hidden_centroids, linear_probe, method
from knnprompt_jax.prompts import layout
from knnprompt_jax.tasks.task import Example

CLASSIFIERS = ("centroids", "probe")


@dataclasses.dataclass(frozen=True)
class Settings(options.Options):
    """What reads the chosen layer."""

    classifier: str = options.option("centroids", "Nearest class mean, or a linear probe.", choices=CLASSIFIERS)
    inverse_penalty: float = options.option(1000.0, "Of the probe, as linear_probe's.", least=1e-6)


def leave_one_out(hidden_NE: np.ndarray, y: np.ndarray) -> float:
    """The share of rows whose nearest class mean, by Euclidean distance, is that of their class, though they do not count in it.

    A row that is alone in its class is never right; of means equally near the lowest class is taken.
    """
    classes, y = np.unique(y, return_inverse=True)
    count_C = np.bincount(y)
    sum_CE = np.stack([hidden_NE[y == label].sum(0) for label in range(len(classes))])
    squared_NC = np.stack([((hidden_NE - mean_E) ** 2).sum(-1) for mean_E in sum_CE / count_C[:, None]], axis=-1)
    rows, left = np.arange(len(y)), count_C[y] - 1
    own_NE = (sum_CE[y] - hidden_NE) / np.maximum(left, 1)[:, None]
    squared_NC[rows, y] = np.where(left > 0, ((hidden_NE - own_NE) ** 2).sum(-1), np.inf)
    return float(np.mean(squared_NC.argmin(-1) == y))


def choose(hidden_NLE: np.ndarray, y: np.ndarray) -> tuple[int, float]:
    """The layer, from 0, in which leaving one row out is right most often, and how often."""
    right_L = [leave_one_out(hidden_NLE[:, layer].astype(np.float64), y) for layer in range(hidden_NLE.shape[1])]
    return len(right_L) - 1 - int(np.argmax(right_L[::-1])), max(right_L)


def run(context: method.Context, settings: Settings) -> method.Prediction:
    """Reads anchors and queries again, all layers of them, and predicts from the layer chosen; a query among the anchors is read once."""
    problem, model = context.problem, context.model
    texts = _texts(problem)
    prompts = layout.lay_out(
        problem.task,
        problem.split.demonstrations,
        list(texts.values()),
        problem.tokenize,
        model.context,
        problem.truncation,
    )
    with progress.bar(prompts.num_prompts, f"seed {context.seed}, all layers") as report:
        read_NLE = layers.states(model, prompts, report)
    place = {text: number for number, text in enumerate(texts)}
    anchors, queries = (
        read_NLE[[place[problem.task.render(row)] for row in rows]]
        for rows in (problem.split.anchors, problem.evaluation)
    )
    layer, right = choose(anchors, context.y)
    classifier = _classifier(context, settings).fit(_as_states(anchors, layer), context.y)
    probabilities_QC = classifier.predict_proba(_as_states(queries, layer))
    told = f"layer {layer + 1} of {read_NLE.shape[1]}, {100 * right:.0f} % of anchors right when left out"
    return method.Prediction(
        probabilities_QC.argmax(-1),
        probabilities_QC,
        told,
        prompts=prompts.num_prompts,
        truncated=prompts.num_truncated,
    )


def cost(problem: method.Problem, reader: method.Reader, settings: Settings) -> method.Cost:
    """Anchors and queries once more."""
    texts = _texts(problem)
    shown = reader.demonstration_tokens(problem.task, problem.split.demonstrations)
    return method.Cost(len(texts), shown + int(reader.lengths(list(texts)).sum()))


def _texts(problem: method.Problem) -> dict[str, Example]:
    """The queries that are read: an example for each text."""
    return {problem.task.render(row): row for row in (*problem.split.anchors, *problem.evaluation)}


def _classifier(context: method.Context, settings: Settings) -> base.StateClassifier:
    if settings.classifier == "centroids":
        return hidden_centroids.HiddenCentroids(context.num_classes)
    probe = linear_probe.Settings(inverse_penalty=settings.inverse_penalty)
    return linear_probe.LinearProbe(context.head, context.num_classes, probe)


def _as_states(hidden_NLE: np.ndarray, layer: int) -> lm.States:
    """Of one layer; there is no next-token distribution to them."""
    return lm.States(jnp.asarray(hidden_NLE[:, layer]), jnp.zeros(len(hidden_NLE)))


def check(problem: method.Problem) -> None:
    """Raises UserError where there are no anchors."""
    if not problem.split.anchors:
        raise errors.UserError("there are no anchors: choose more shots")


_declare = functools.partial(
    method.Method,
    source="Skean et al., ICML 2025, abstract",
    run=run,
    check=check,
    cost=cost,
    by_name="it reads all prompts again and keeps every layer: name the method to run it",
)
METHODS = (
    _declare("hidden_centroids_layer", "Hidden Calibration, chosen layer", settings=Settings, look=3),
    _declare(
        "linear_probe_layer",
        "Linear probe, chosen layer",
        settings=method.with_defaults(Settings, classifier="probe"),
        look=1,
    ),
)
