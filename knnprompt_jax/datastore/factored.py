"""The factored store: exact KL divergences as inner products in E dimensions instead of V.

A bias is a column of the head (`Decoder.head`). So log k(v) = w_v · h − A(h), with the log-partition A(h) = log Σ_v
exp(w_v · h). The gradient of A is the mean row of the head under k, e = Wᵀk. Take a query p with state h_p and an
anchor k_i with state h_i:

    KL(p ‖ k_i) = Σ p log p − Σ p log k_i     = −H(p) − e_p · h_i + A(h_i)      "kl", mean row of the query
    KL(k_i ‖ p) = Σ k_i log k_i − Σ k_i log p = −H(k_i) − e_i · h_p + A(h_p)    "reverse_kl", mean row of the anchor

with −H(p) = e_p · h_p − A(h_p) and −H(k_i) = e_i · h_i − A(h_i). (They are the Bregman divergences of A.) An anchor is
(h_i, A(h_i)) for `kl` and (e_i, −H(k_i)) for `reverse_kl`; a query is (e_p, −H(p)) for `kl` and (h_p, A(h_p)) for
`reverse_kl`.

Numerics. In float32 the terms above, about 90 nats each in trained models, would cancel to distances below 1 nat. So
everything is counted from a centre c, the mean state of the anchors (if deterministic, the first state), with its
distribution k_c and its mean row e_c = Wᵀk_c:

    h → h − c,   w_v → w_v − e_c,   A → log Σ_v exp(log k_c(v) + (w_v − e_c) · (h − c)).

No distribution changes: a state loses c, and its logits get log k_c(v) instead, up to one number for all tokens; every
row loses e_c, so that all logits of a state lose one number. At c both A and its gradient then vanish; A(h_i) is
KL(k_c ‖ k_i), and −H(k_i) is KL(k_i ‖ k_c). Any centre is exact. Probabilities are divided by their float32 sum, which
misses 1 by up to 1e-5.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax.datastore import rowwise
from knnprompt_jax.datastore.distances import Affine, Distance
from knnprompt_jax.inference import lm
from knnprompt_jax.models import head as head_lib

Array = jax.Array
TOKENS_PER_TILE = 2048  # Tokens of the vocabulary whose logits exist at a time.


@struct.dataclass
class Frame:
    """The head as seen from the centre of the anchors; it turns states into keys and queries.

    `head_VE` is W centred on `shift_E`; `centre_E` and `log_z` are the state at the centre and its log-partition under
    W; `log_p_V` is the distribution at the centre.
    """

    head_VE: Array
    shift_E: Array
    centre_E: Array
    log_z: Array
    log_p_V: Array


@dataclasses.dataclass(frozen=True)
class FactoredCodec:
    """Maps states to keys and queries of E + 1 numbers each, for a KL divergence over all tokens.

    Attributes:
        frame: the head as seen from the centre of the anchors.
        distance: the distance of the search; the side whose probabilities weight its terms enters as a mean row of the
            head.
        deterministic: as in `DenseCodec`.
    """

    frame: Frame
    distance: Distance
    deterministic: bool = False

    @classmethod
    def make(cls, head: head_lib.Head, states: lm.States, distance: Distance) -> Self:
        """Return a codec centred on the anchors with these states."""
        # A deterministic store needs the same centre whatever other anchors there are.
        centre_E = states.hidden_NE[0] if states.deterministic else states.hidden_NE.mean(0)
        return cls(_make_frame(head.rows_VE, centre_E), distance, states.deterministic)

    def encode_anchors(self, states: lm.States) -> Affine:
        """Return the keys of anchors, with N rows."""
        to_key = _mean_row if self.distance.direction == "reverse_kl" else _exact_state
        return rowwise.map_rows(to_key, self.frame, states)

    def encode_queries(self, states: lm.States) -> Affine:
        """Return the queries of `search_lib.search`, with Q rows."""
        to_query = _mean_row if self.distance.direction == "kl" else _centred
        return rowwise.map_rows(to_query, self.frame, states)

    def working_bytes(self, num_queries: int) -> int:
        """Return an upper bound on the memory of `encode_queries` beside its argument, its result and the head."""
        vocabulary, width = self.frame.head_VE.shape
        rows = min(rowwise.ROWS_PER_TILE, max(1, num_queries))
        tokens = min(TOKENS_PER_TILE, vocabulary)
        return 4 * (2 * rows * tokens + tokens * width + 4 * rows * width)


@jax.jit
def _make_frame(head_VE: Array, centre_E: Array) -> Frame:
    with jax.default_matmul_precision("highest"):
        head_VE = head_VE.astype(jnp.float32)
        mean_E = head_VE.mean(0)
        logits_V = (head_VE - mean_E) @ centre_E
        log_p_V = jax.nn.log_softmax(logits_V)
        shift_E = mean_E + jnp.exp(log_p_V) @ (head_VE - mean_E)
        log_z = jax.nn.logsumexp(logits_V) + mean_E @ centre_E
        return Frame(head_VE - shift_E, shift_E, centre_E, log_z, log_p_V)


def _moments(frame: Frame, centred: Affine) -> tuple[Array, Array]:
    """Return the log-partition of a centred state, and its gradient, the mean row of the head.

    The offset of `centred`, its approximate log-partition, keeps exponentials in range.
    """
    vocabulary = len(frame.log_p_V)
    tokens = min(TOKENS_PER_TILE, vocabulary)

    def visit(sums: tuple[Array, Array], first: Array) -> tuple[tuple[Array, Array], None]:
        start = jnp.minimum(first, vocabulary - tokens)  # The last tile overlaps the one before.
        rows_tE = jax.lax.dynamic_slice_in_dim(frame.head_VE, start, tokens)
        log_p_t = jax.lax.dynamic_slice_in_dim(frame.log_p_V, start, tokens)
        p_t = jnp.exp(log_p_t + rows_tE @ centred.vector - centred.offset)
        p_t = jnp.where(start + jnp.arange(tokens) < first, 0, p_t)
        total, sum_E = sums
        return (total + p_t.sum(), sum_E + p_t @ rows_tE), None

    zeros = jnp.zeros_like(centred.offset), jnp.zeros_like(centred.vector)
    (total, sum_E), _ = jax.lax.scan(visit, zeros, jnp.arange(0, vocabulary, tokens))
    return centred.offset + jnp.log(total), sum_E / total


def _centred(frame: Frame, state: lm.States) -> Affine:
    """Return (h, A(h)) relative to the centre, with the log-partition of the language model, without a sum over V.

    For a query, its rounding adds the same number to the distance of every anchor, and changes no order. `state` is a
    single row of `map_rows`: its `hidden_NE` is [E], and its `log_z_N` a scalar.
    """
    hidden_E = state.hidden_NE - frame.centre_E
    return Affine(hidden_E, state.log_z_N - frame.log_z - frame.shift_E @ hidden_E)


def _exact_state(frame: Frame, state: lm.States) -> Affine:
    """Return (h, A(h)) with the log-partition summed over V."""
    centred = _centred(frame, state)
    log_z, _ = _moments(frame, centred)
    return Affine(centred.vector, log_z)


def _mean_row(frame: Frame, state: lm.States) -> Affine:
    """Return (e, e · h − A(h)): the mean row of the head and the divergence from the centre."""
    centred = _centred(frame, state)
    log_z, mean_row_E = _moments(frame, centred)
    return Affine(mean_row_E, mean_row_E @ centred.vector - log_z)
