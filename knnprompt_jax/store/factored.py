"""The factored store: exact KL divergences as inner products in E dimensions instead of V.

The head has no bias, so log k(v) = w_v · h − A(h), where A(h) = log Σ_v exp(w_v · h) is the log-partition. The gradient
of A is the mean row of the head under k, e = Wᵀk. Take a query p with state h_p and an anchor k_i with state h_i:

    KL(p ‖ k_i) = Σ p log p − Σ p log k_i     = −H(p) − e_p · h_i + A(h_i)      "kl", mean row of the query
    KL(k_i ‖ p) = Σ k_i log k_i − Σ k_i log p = −H(k_i) − e_i · h_p + A(h_p)    "reverse_kl", mean row of the anchor

with −H(p) = e_p · h_p − A(h_p) and −H(k_i) = e_i · h_i − A(h_i). (They are the Bregman divergences of A.) An anchor is
(h_i, A(h_i)) for `kl` and (e_i, H(k_i)) for `reverse_kl`; a query of `reverse_kl` is its state.

Numerics. In float32 the terms above, about 90 nats each in trained models, would cancel to distances below 1 nat. Subtracting a
vector c from every state or from every row of W changes no divergence. So c is the mean state of the first anchors, W is
centred on its mean row under the distribution at c, and A is counted from A(c):

    h → h − c,   w_v → w_v − e_c,   A → log Σ_v exp(log k_c(v) + (w_v − e_c) · (h − c)).

At c both A and its gradient then vanish; A(h_i) is KL(k_c ‖ k_i), and −H(k_i) is KL(k_i ‖ k_c). The centre is fixed when a
store is built: any centre is exact, so anchors can be appended without touching the others. Probabilities are divided by
their float32 sum, which misses 1 by up to 1e-5.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
from flax import struct

from knnprompt_jax import lm
from knnprompt_jax.models import head as head_lib
from knnprompt_jax.store import codec, distances, placement

Array = jax.Array
TILE = 2048  # Tokens of the vocabulary whose logits exist at a time.


@struct.dataclass
class Frame:
    """The head as seen from the centre of the anchors; it turns states into keys and queries.

    `head_VE` is W centred on `shift_E`; `centre_E` and `log_z` are the state at the centre and its log-partition under W;
    `log_p_V` is the distribution at the centre.
    """

    head_VE: Array
    shift_E: Array
    centre_E: Array
    log_z: Array
    log_p_V: Array


@struct.dataclass
class Keys:
    """Anchors relative to the centre: states and log-partitions; for `reverse_kl` also mean rows and KL(k_i ‖ k_c)."""

    hidden_NE: Array
    log_z_N: Array
    mean_row_NE: Array | None = None
    divergence_N: Array | None = None


class Codec(codec.Codec):
    """A store of keys [E] and queries [E],.

    `head` is centred; `constants` are the other fields of the `Frame`. An anchor takes 4 (E + 1) bytes, and twice that
    if the store keeps mean rows for `reverse_kl`. A `key_dtype` of "float16" or "bfloat16" halves that
    (docs/datastores.md has the errors): the log-partition is that of the rounded state, so that near anchors err least.
    """

    @staticmethod
    def serves(built_for: str) -> tuple[str, ...]:
        sides = ("query", "anchor") if _keeps_mean_rows(built_for) else ("query",)
        return tuple(
            name
            for name, distance in distances.DISTANCES.items()
            if distance.mean_row in sides or distance.representation != "distribution"
        )

    @staticmethod
    def constants_of(head: head_lib.Head, states: lm.States) -> dict[str, Array]:
        # A deterministic store needs the same centre whatever other anchors there are.
        return _constants(head.rows_VE, states.hidden_NE[0] if states.deterministic else states.hidden_NE.mean(0))

    @classmethod
    def make(
        cls, head: head_lib.Head, label_ids: Sequence[int], constants: Mapping[str, Array], **options: Any
    ) -> Self:
        centred = head_lib.Head(head.rows_VE.astype(jnp.float32) - constants["shift_E"])
        return cls(centred, tuple(label_ids), constants, **options)

    def working_bytes(self, num_queries: int) -> int:
        rows, width = min(placement.ROWS_PER_TILE, max(1, num_queries)), self.head.rows_VE.shape[1]
        tokens = min(TILE, len(self.head))
        return 4 * (2 * rows * tokens + tokens * width + 4 * rows * width)

    @property
    def frame(self) -> Frame:
        return Frame(self.head.rows_VE, **self.constants)

    def encode(self, states: lm.States) -> Keys:
        return placement.map_rows(_encode, self.frame, states, self.key_dtype, _keeps_mean_rows(self.built_for))

    def queries(self, states: lm.States, distance: distances.Distance) -> Any:
        if distance.mean_row == "query":
            return placement.map_rows(_mean_row_query, self.frame, states)
        keys = placement.map_rows(_state_key, self.frame, states)
        if distance.mean_row == "anchor":
            return distances.Affine(keys.hidden_NE, keys.log_z_N)
        return jax.vmap(distance.prepare_query)(self.references(keys, distance))

    def references(self, keys: Keys, distance: distances.Distance) -> Any:
        if distance.mean_row == "query":
            return distances.Affine(keys.hidden_NE, keys.log_z_N)
        if distance.mean_row == "anchor":
            assert keys.mean_row_NE is not None and keys.divergence_N is not None  # `serves` says so.
            return distances.Affine(keys.mean_row_NE, keys.divergence_N)
        if distance.representation == "hidden":
            return keys.hidden_NE
        logk_NC = placement.map_rows(_label_log_probabilities, self.frame, keys, self.label_ids)
        return jax.nn.log_softmax(logk_NC)

    def measured_by(self, distance: distances.Distance) -> distances.Distance:
        return distances.AFFINE if distance.mean_row else distance

    def log_probabilities(self, keys: Keys, distance: distances.Distance) -> Array:
        if distance.reads_label_words:
            return self.references(keys, distance)
        return placement.map_rows(_log_probabilities, self.frame, keys, tile=placement.ROWS_OF_LOGITS)


def _keeps_mean_rows(built_for: str) -> bool:
    return not built_for or distances.get(built_for).mean_row == "anchor"


@jax.jit
def _constants(head_VE: Array, centre_E: Array) -> dict[str, Array]:
    with jax.default_matmul_precision("highest"):
        head_VE = head_VE.astype(jnp.float32)
        mean_E = head_VE.mean(0)
        logits_V = (head_VE - mean_E) @ centre_E
        log_p_V = jax.nn.log_softmax(logits_V)
        shift_E = mean_E + jnp.exp(log_p_V) @ (head_VE - mean_E)
        log_z = jax.nn.logsumexp(logits_V) + mean_E @ centre_E
        return {"shift_E": shift_E, "centre_E": centre_E, "log_z": log_z, "log_p_V": log_p_V}


def _moments(frame: Frame, key: Keys) -> tuple[Array, Array]:
    """Return the log-partition of a state relative to the centre, and its gradient, the mean row of the head.

    The key's log-partition is an estimate that keeps exponentials in range.
    """
    vocabulary = len(frame.log_p_V)
    tile = min(TILE, vocabulary)

    def visit(sums: tuple[Array, Array], first: Array) -> tuple[tuple[Array, Array], None]:
        start = jnp.minimum(first, vocabulary - tile)  # The last tile overlaps the one before.
        rows_tE, log_p_t = (jax.lax.dynamic_slice_in_dim(each, start, tile) for each in (frame.head_VE, frame.log_p_V))
        p_t = jnp.exp(log_p_t + rows_tE @ key.hidden_NE - key.log_z_N)
        p_t = jnp.where(start + jnp.arange(tile) < first, 0, p_t)
        return (sums[0] + p_t.sum(), sums[1] + p_t @ rows_tE), None

    initial = jnp.zeros_like(key.log_z_N), jnp.zeros_like(key.hidden_NE)
    (total, sum_E), _ = jax.lax.scan(visit, initial, jnp.arange(0, vocabulary, tile))
    return key.log_z_N + jnp.log(total), sum_E / total


def _encode(frame: Frame, state: lm.States, key_dtype: str, with_mean_row: bool) -> Keys:
    key = _state_key(frame, state)
    hidden_E = _rounded(key.hidden_NE, key_dtype)
    log_z, mean_row_E = _moments(frame, Keys(hidden_E, key.log_z_N))
    if not with_mean_row:
        return Keys(hidden_E.astype(key_dtype), log_z)
    mean_row_E = _rounded(mean_row_E, key_dtype)
    return Keys(hidden_E.astype(key_dtype), log_z, mean_row_E.astype(key_dtype), mean_row_E @ hidden_E - log_z)


def _rounded(x_E: Array, dtype: str) -> Array:
    """Round float32 numbers to the digits of a dtype; the compiler may drop a cast there and back."""
    info = jnp.finfo(dtype)
    return jax.lax.reduce_precision(x_E, info.nexp, info.nmant)


def _mean_row_query(frame: Frame, state: lm.States) -> distances.Affine:
    key = _state_key(frame, state)
    log_z, mean_row_E = _moments(frame, key)
    return distances.Affine(mean_row_E, mean_row_E @ key.hidden_NE - log_z)


def _state_key(frame: Frame, state: lm.States) -> Keys:
    """Return a state relative to the centre; its log-partition comes from the language model, without a sum over V."""
    hidden_E = state.hidden_NE - frame.centre_E
    return Keys(hidden_E, state.log_z_N - frame.log_z - frame.shift_E @ hidden_E)


def _label_log_probabilities(frame: Frame, key: Keys, label_ids: tuple[int, ...]) -> Array:
    ids_C = jnp.array(label_ids)
    return frame.log_p_V[ids_C] + frame.head_VE[ids_C] @ key.hidden_NE.astype(jnp.float32) - key.log_z_N


def _log_probabilities(frame: Frame, key: Keys) -> Array:
    return jax.nn.log_softmax(frame.log_p_V + frame.head_VE @ key.hidden_NE.astype(jnp.float32))
