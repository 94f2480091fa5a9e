"""Predictions that rounding decides: those that another machine, dtype or arrangement of the same prompts may give otherwise.

Every layer rounds the state h that it passes on to u, half the last digit's place, so that after L layers it is off by about
u √L ‖h‖ in a random direction. Logits, which are inner products of the head's rows with h, are then off by

    unit = u √L ‖h‖ · (standard deviation of the head's entries),

and √KL between two distributions by as much: for distributions that are near each other KL is half the variance of what their
logits differ by, and √KL a metric. Rounded keys of a factored store are states rounded once more. The arithmetic of a distance
adds a share of its terms, which are log-probabilities of about log V and as far from it as logits reach, and more where these are rounded
keys of a dense store. Euclidean distances are off by u √L ‖h‖ itself.

How many units it is, is measured, on 60 and 36 prompts of the demo task, with bfloat16 against float32 and with float32 prompts alone
against all together. The largest for the shipped model (5 layers) and SmolLM2-135M (30) in either case: roots of divergences 0.7 to
1.1 units (over label words to 1.3), log-ratios of label words 1.8 to 5.0, Euclidean distances 0.4 to 2.0. The constants are half as
large again. A model that rounds worse may change predictions that are not marked.
"""

import dataclasses
import math
import weakref

import jax
import jax.numpy as jnp
import numpy as np

from knnprompt_jax import lm
from knnprompt_jax.store import codec as codec_lib
from knnprompt_jax.store import distances, kernel

LOOKED_AT = 8  # Neighbours beyond those that vote.
_ROOT_UNITS = 2.0  # What the root of a divergence moves by, in either direction, over all tokens or label words.
_RATIO_UNITS = 7.5  # What the logarithm of the ratio of two label words moves by.
_STATE_UNITS = 3.0  # What a Euclidean distance moves by, in u √L ‖h‖.
_UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-12, "bfloat16": 2.0**-9, "int8": 2.0**-9}
# What a sum over all tokens is off by, in u of its terms; with it the errors in docs/datastores.md are bounded.
_SUM_ROUNDOFFS = 20
_PAIRS = 2**22
_spreads: "weakref.WeakKeyDictionary[lm.LanguageModel, float]" = weakref.WeakKeyDictionary()


def by_scores(probabilities_QC: np.ndarray, model: lm.LanguageModel, states: lm.States, moves: int) -> np.ndarray:
    """Whether the best two classes of each row [Q] are nearer than rounding moves the logarithm of their ratio.

    Args:
        states: those that the probabilities are of.
        moves: how often the error of a label word's log-probability counts in them.
    """
    if probabilities_QC.shape[1] < 2:
        return np.zeros(len(probabilities_QC), bool)
    second_Q, best_Q = np.sort(np.asarray(probabilities_QC, np.float64))[:, -2:].T
    unit_Q = _relative(model) * _spread(model) * _size(states)[:, 0]
    return best_Q <= second_Q * np.exp(moves * _RATIO_UNITS * unit_Q)


def by_votes(
    near: kernel.Neighbours,
    bounds: tuple[np.ndarray, np.ndarray],
    k: int,
    num_anchors: int,
    classes_Q: np.ndarray,
    tie_break: str,
) -> np.ndarray:
    """Whether the majority [Q] of k neighbours could be another, if every distance may lie anywhere between its bounds.

    Each rival class is given all votes that it can have. Anchors that were not looked at may be of any class.

    Args:
        near: the K ≥ k nearest of the anchors, nearest first.
        bounds: the least and the largest distance [Q, K] of each.
        classes_Q: the majorities.
    """
    labels_QK = np.asarray(near.labels_Qk)
    count = max(
        1, _PAIRS // labels_QK.shape[1] ** 2
    )  # Of queries at a time: all pairs of their neighbours are compared.
    parts = [slice(start, start + count) for start in range(0, len(labels_QK), count)]
    is_all = labels_QK.shape[1] == num_anchors
    votes = [
        _can_lose(labels_QK[part], _places(bounds[0][part], bounds[1][part], k, is_all), k, classes_Q[part], tie_break)
        for part in parts
    ]
    return np.concatenate(votes) if votes else np.zeros(0, bool)


@dataclasses.dataclass(frozen=True)
class _Places:
    """Which of K neighbours are among the k nearest: for sure, or perhaps.

    `unseen_Q1` says whether an anchor that was not looked at may be among them; those are at `beyond_Q1` or farther. The least
    distances are `low_QK`, and the largest of the first neighbour `nearest_high_Q1`.
    """

    sure_QK: np.ndarray
    open_QK: np.ndarray
    unseen_Q1: np.ndarray
    low_QK: np.ndarray
    nearest_high_Q1: np.ndarray
    beyond_Q1: np.ndarray


def _places(low_QK: np.ndarray, high_QK: np.ndarray, k: int, is_all: bool) -> _Places:
    """By the distances' bounds; unless the neighbours are all anchors, there are others that are no nearer than the last of them."""
    beyond_Q1 = np.full((len(low_QK), 1), np.inf) if is_all else low_QK[:, -1:]
    others_KK = ~np.eye(low_QK.shape[1], dtype=bool)
    may_precede_QK = ((low_QK[:, None] <= high_QK[:, :, None]) & others_KK).sum(-1)
    must_precede_QK = ((high_QK[:, None] < low_QK[:, :, None]) & others_KK).sum(-1)
    before_unseen_QK = high_QK < beyond_Q1
    sure_QK = (may_precede_QK < k) & before_unseen_QK
    open_QK = (must_precede_QK < k) & ~sure_QK
    unseen_Q1 = before_unseen_QK.sum(-1, keepdims=True) < k
    return _Places(sure_QK, open_QK, unseen_Q1, low_QK, high_QK[:, :1], beyond_Q1)


def _can_lose(labels_QK: np.ndarray, places: _Places, k: int, classes_Q: np.ndarray, tie_break: str) -> np.ndarray:
    """Whether another class can have more votes than `classes_Q` [Q], or as many and win the tie."""
    seats_Q1 = k - places.sure_QK.sum(-1, keepdims=True)
    agrees_QK = labels_QK == classes_Q[:, None]
    alike_QKK = labels_QK[:, None] == labels_QK[:, :, None]
    sure_Q1, open_Q1 = ((members & agrees_QK).sum(-1, keepdims=True) for members in (places.sure_QK, places.open_QK))
    rival_sure_QK, rival_open_QK = (
        (alike_QKK & members[:, None]).sum(-1) for members in (places.sure_QK, places.open_QK)
    )
    gained_QK = np.minimum(seats_Q1, rival_open_QK + places.unseen_Q1 * seats_Q1)
    third_QK = places.open_QK.sum(-1, keepdims=True) - rival_open_QK - open_Q1
    lead_QK = sure_Q1 + np.maximum(0, seats_Q1 - gained_QK - third_QK) - rival_sure_QK - gained_QK
    if tie_break == "lowest":
        loses_ties_QK = labels_QK < classes_Q[:, None]
    else:  # It wins them where the nearest anchor is of its class for sure.
        others_low_Q1 = np.where(agrees_QK, np.inf, places.low_QK).min(-1, keepdims=True)
        loses_ties_QK = ~agrees_QK[:, :1] | (places.nearest_high_Q1 >= np.minimum(others_low_Q1, places.beyond_Q1))
    loses_QK = ~agrees_QK & ((lead_QK < 0) | ((lead_QK == 0) & loses_ties_QK))
    return loses_QK.any(-1) | (places.unseen_Q1 & (seats_Q1 >= sure_Q1))[:, 0]


def bounds(
    near: kernel.Neighbours,
    distance: distances.Distance,
    model: lm.LanguageModel,
    states: lm.States,
    codec: codec_lib.Codec,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Between which distances [Q, K] those of the neighbours may lie; None where the distance is no divergence of distributions.

    Args:
        states: of the texts [Q], by this model.
        codec: of the store that was searched.
    """
    if distance.representation == "partial_raw":
        return None
    distances_QK, size_Q1 = np.asarray(near.distances_Qk, np.float64), _size(states)
    in_keys = _UNIT_ROUNDOFF[codec.key_dtype]
    if distance.representation == "hidden":
        move_Q1 = (_STATE_UNITS * _relative(model) + in_keys) * size_Q1
        return distances_QK - move_Q1, distances_QK + move_Q1
    logits_Q1, of_states, of_terms = (
        _spread(model) * size_Q1,
        _relative(model),
        _SUM_ROUNDOFFS * _UNIT_ROUNDOFF["float32"],
    )
    if codec.kind == "factored":  # Whose keys are states.
        of_states += in_keys
    else:
        of_terms += 2 * in_keys
    roots_QK, move_Q1 = np.sqrt(np.maximum(distances_QK, 0)), _ROOT_UNITS * of_states * logits_Q1
    terms_Q1 = of_terms * (math.log(len(model.head)) + 4 * logits_Q1 + roots_QK[:, -1:] ** 2)
    return np.maximum(roots_QK - move_Q1, 0) ** 2 - terms_Q1, (roots_QK + move_Q1) ** 2 + terms_Q1


def against(
    near: kernel.Neighbours, bounds: tuple[np.ndarray, np.ndarray], classes_Q: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Classes and distances [Q, K] of the neighbours, nearest first, if rounding turned all distances against the classes [Q]."""
    labels_QK = np.asarray(near.labels_Qk)
    moved_QK = np.where(labels_QK == classes_Q[:, None], bounds[1], bounds[0])
    order_QK = np.argsort(moved_QK, -1, kind="stable")
    return np.take_along_axis(labels_QK, order_QK, -1), np.take_along_axis(moved_QK, order_QK, -1)


def linear_moves(weights_EC: np.ndarray, model: lm.LanguageModel, states: lm.States) -> np.ndarray:
    """By how much scores [Q, C] that are linear in the state may move: three deviations of an error in a random direction."""
    norms_C = np.linalg.norm(weights_EC, axis=0) / math.sqrt(len(weights_EC))
    return 3 * _STATE_UNITS * _relative(model) * _size(states) * norms_C


def _spread(model: lm.LanguageModel) -> float:
    """The standard deviation of the head's entries."""
    if model not in _spreads:
        _spreads[model] = float(jnp.std(model.head.rows_VE.astype(jnp.float32)))
    return _spreads[model]


def _relative(model: lm.LanguageModel) -> float:
    """u √L."""
    return _UNIT_ROUNDOFF[model.dtype] * math.sqrt(model.config.num_layers)


def _size(states: lm.States) -> np.ndarray:
    """‖h‖ [Q, 1]."""
    return np.linalg.norm(np.asarray(jax.device_get(states.hidden_NE), np.float64), axis=-1, keepdims=True)
