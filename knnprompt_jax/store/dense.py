"""Old names of `codec.Dense` and `codec.DenseKeys`."""

from knnprompt_jax.store.codec import Dense as Codec
from knnprompt_jax.store.codec import DenseKeys as Keys

__all__ = ["Codec", "Keys"]
