"""Prompts → states: the only place that makes a `lm.QueuedPass`."""

from knnprompt_jax.inference.states.cache import Cache, DiskCache, MemoryCache, open_disk_cache
from knnprompt_jax.inference.states.reading import PassResult, read, read_sets

__all__ = ["Cache", "DiskCache", "MemoryCache", "PassResult", "open_disk_cache", "read", "read_sets"]
