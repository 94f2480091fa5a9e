"""Training: which weights decay, the loop over the steps, and checkpoints from which a killed run resumes."""

import hashlib
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import optax
import orbax.checkpoint as ocp
import tqdm
from flax import nnx

from knnprompt_jax import errors, files

# Parameters and optimizer state after a step, and the loss before it.
Updated = tuple[nnx.State, optax.OptState, jax.Array]
# Takes the number of a step, counted from 0, the parameters and the optimizer state.
Update = Callable[[int, nnx.State, optax.OptState], Updated]


def decays(params: nnx.State) -> nnx.State:
    """Return which weights have weight decay: all but biases and the scales of normalisation."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: not any(name in jax.tree_util.keystr(path) for name in ("bias", "scale")), params
    )


class Training:
    """The parameters and optimizer state of a training run, from its newest checkpoint if there is one."""

    def __init__(self, params: nnx.State, state: optax.OptState, folder: pathlib.Path | None, run: Mapping[str, Any]):
        """Restore the newest checkpoint.

        Args:
            params: the parameters before the first step.
            state: the optimizer state before the first step.
            folder: where checkpoints are saved; none are if it is None.
            run: a description in JSON types. Each description has a folder of its own, so that only the same run
                resumes.
        """
        self.step = 0
        self.params = params
        self._state = state
        self._manager: ocp.CheckpointManager | None = None
        if not folder:
            return
        digest = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()
        options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(folder.absolute() / f"checkpoints-{digest[:16]}", options=options)
        if (step := self._manager.latest_step()) is not None:
            try:
                saved = self._manager.restore(step, args=ocp.args.StandardRestore(self._tree()))
            except Exception as error:  # Orbax raises nothing narrower for damaged files.
                raise errors.UserError(
                    f"{self._manager.directory}/{step}: damaged checkpoint ({errors.one_line(error)}); remove it to begin anew"
                ) from None
            nnx.replace_by_pure_dict(params, saved["params"])
            self.step = step
            self._state = jax.tree.unflatten(jax.tree.structure(state), saved["optimizer"])

    def steps(self, update: Update, total: int, checkpoint_every: int, learning_rate: float) -> Iterator[float]:
        """Update until step `total`, yield the loss of each step, and save the last step.

        Raises UserError if a loss is not finite.
        """
        with tqdm.tqdm(total=total, initial=self.step, unit="step", disable=None) as bar:
            while self.step < total:
                self.params, self._state, loss_before = update(self.step, self.params, self._state)
                self.step += 1
                loss = float(loss_before)
                if not math.isfinite(loss):
                    raise errors.UserError(f"the loss is {loss} at step {self.step}: lower {learning_rate=}")
                bar.update()
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
                yield loss
                if self.step % checkpoint_every == 0 or self.step == total:
                    self._save()

    def _save(self) -> None:
        """Replace the checkpoint, if there is a folder for it."""
        if self._manager:
            with files.refusals(self._manager.directory):
                self._manager.save(self.step, args=ocp.args.StandardSave(self._tree()))

    def _tree(self) -> dict[str, Any]:
        return {"params": nnx.to_pure_dict(self.params), "optimizer": jax.tree.leaves(self._state)}
