"""A language model that reads no prompt whose states another run has left on disk."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from knnprompt_jax import lm, parallel
from knnprompt_jax import progress as progress_lib
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.runs import states_cache

Shape = Callable[[layout.PromptGroup], packing.PackShape]


class CachedModel(lm.LanguageModel):
    """`model` with its weights, compiled programs and statistics, and a cache beside it, in which process 0 alone looks and writes.

    `spared_tokens` counts the tokens that passes without a cache would have read beside those that were.
    """

    def __init__(self, model: lm.LanguageModel, cache: states_cache.StatesCache):
        vars(self).update(vars(model))
        self.cache, self.spared_tokens = cache, 0

    def states(
        self,
        prompts: layout.Prompts,
        shape: Shape | None = None,
        progress: progress_lib.Progress | None = None,
        keep_prefix: bool = False,
    ) -> lm.States:
        """As `LanguageModel.states`, of which only prompts that are not in the cache are read."""
        if not self.cache.most_bytes or not self.fingerprint or not prompts.num_prompts:
            return super().states(prompts, shape, progress, keep_prefix)
        keys_N = states_cache.keys_of(prompts, f"{self.fingerprint} {self.dtype} {self.deterministic}")
        there_N, found_nF = self._find(keys_N)
        if not there_N.any():
            states = super().states(prompts, shape, progress, keep_prefix)
            self._keep(keys_N, states)
            return states
        if progress:
            progress(len(found_nF), 0)
        before = self.statistics.tokens
        rows_NF = np.zeros((len(keys_N), found_nF.shape[1]), np.float32)
        rows_NF[there_N] = found_nF
        if not there_N.all():
            missing = states_cache.without(prompts, there_N)
            states = super().states(missing, _fitting(shape) if shape else None, progress, keep_prefix)
            rows_NF[~there_N] = self._keep(keys_N[~there_N], states)
        self.spared_tokens += self._tokens_of(prompts, shape) - (self.statistics.tokens - before)
        spec = parallel.by_rows(self.mesh, len(rows_NF)).spec
        hidden_NE, log_z_N = (parallel.put(array, self.mesh, spec) for array in (rows_NF[:, :-1], rows_NF[:, -1]))
        return lm.States(hidden_NE, log_z_N, deterministic=self.deterministic)

    def _find(self, keys_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What process 0 finds, for every process."""
        width = self.config.state_width + 1
        there_N, found_nF = np.zeros(len(keys_N), bool), np.zeros((0, width), np.float32)
        if parallel.is_main():
            there_N, found_nF = self.cache.find(keys_N, width)
        there_N = parallel.from_main(there_N)
        if not parallel.is_main():
            found_nF = np.zeros((int(there_N.sum()), width), np.float32)
        return there_N, parallel.from_main(found_nF) if there_N.any() else found_nF

    def _keep(self, keys_N: np.ndarray, states: lm.States) -> np.ndarray:
        """Keeps states, and gives them as rows [N, E + 1]."""
        hidden_NE, log_z_N = jax.tree.leaves(parallel.replicate(states))
        rows_NF = np.column_stack([np.asarray(hidden_NE), np.asarray(log_z_N)])
        if parallel.is_main():
            self.cache.keep(keys_N, rows_NF)
        return rows_NF

    def _tokens_of(self, prompts: layout.Prompts, shape: Shape | None) -> int:
        """How many tokens a pass over all prompts reads: what several begin with counts once."""
        data = self.mesh.shape[parallel.DATA]
        shape = shape or (lambda group: packing.choose_shape([group], self.step_tokens, data))
        packed = [packing.pack(group, shape(group)) for group in prompts.groups]
        return sum(each.num_tokens + each.prefix_length for each in packed)


def _fitting(shape: Shape) -> Shape:
    """The packing of a group, some of whose prompts are left: these may be packed into fewer rows, with more to read in a step."""

    def fitting(group: layout.PromptGroup) -> packing.PackShape:
        chosen = shape(group)
        most = packing.round_up(packing.most_reads(group, chosen.width, chosen.rows), 8)
        return dataclasses.replace(chosen, reads=max(chosen.reads, most))

    return fitting
