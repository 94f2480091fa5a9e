"""Choose the unlabelled rows whose labels are worth most: uncertain ones that are not near each other.

The rule is BADGE (Ash et al., "Deep Batch Active Learning by Diverse, Uncertain Gradient Lower Bounds", ICLR 2020). A
row is represented by the gradient that its predicted label would cause in the last layer of a classifier: the outer
product of (p − predicted label) and its features. An uncertain row has a long gradient. k-means++ seeding (Arthur and
Vassilvitskii, 2007) draws each row with a probability proportional to its squared distance from the chosen gradients.
So chosen rows are uncertain, and differ in their features or in the classes between which they are undecided.

The gradient zero, that of a certain row, counts as chosen from the start. Otherwise a certain row would be drawn early,
because it is far from the chosen gradients.
"""

import numpy as np


def select_batch(p_NC: np.ndarray, x_NF: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Return the indices of `count` of N rows, or of all, in the order in which they are chosen.

    The first row has the longest gradient. Once every gradient equals a chosen one, the remaining rows follow in the
    order of their margin.

    Args:
        p_NC: the probabilities of the classes.
        x_NF: features that rows are compared by.
    """
    rng = np.random.default_rng(seed)
    factors_NC = p_NC - np.eye(p_NC.shape[1])[p_NC.argmax(-1)]
    squares_N = np.sum(factors_NC**2, -1) * np.sum(x_NF**2, -1)
    chosen: list[int] = []
    nearest_N = squares_N.copy()
    while len(chosen) < count and nearest_N.max() > 0:
        row = int(rng.choice(len(p_NC), p=nearest_N / nearest_N.sum()) if chosen else squares_N.argmax())
        chosen.append(row)
        products_N = (factors_NC @ factors_NC[row]) * (x_NF @ x_NF[row])
        distances_N = squares_N + squares_N[row] - 2 * products_N
        nearest_N = np.minimum(nearest_N, distances_N).clip(0)
        nearest_N[chosen] = 0
    rest = np.setdiff1d(np.argsort(margins(p_NC), kind="stable"), chosen, assume_unique=True)
    return np.concatenate([np.array(chosen, int), rest])[:count]


def margins(p_NC: np.ndarray) -> np.ndarray:
    """Return the difference [N] of the two largest probabilities; 1 if there is only one class."""
    sorted_NC = np.sort(p_NC, -1)
    return sorted_NC[:, -1] - sorted_NC[:, -2] if p_NC.shape[1] > 1 else np.ones(len(p_NC))
