"""Prompts → states: the only caller of `LanguageModel.run_pass`."""

from knnprompt_jax.states.cache import AnyCache, Cache, MemoryCache, UserCache, user_cache
from knnprompt_jax.states.reading import Reading, read, read_sets

__all__ = ["AnyCache", "Cache", "MemoryCache", "Reading", "UserCache", "read", "read_sets", "user_cache"]
