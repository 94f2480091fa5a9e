"""Training: which weights decay, the loop over the steps, and checkpoints from which a killed run resumes."""

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
    """The parameters and optimizer state of a training run, from the newest checkpoint if there is one."""

    def __init__(self, params: nnx.State, state: optax.OptState, checkpoints: "Checkpoints | None" = None):
        self._checkpoints, self.step, self.params, self._state = checkpoints, 0, params, state
        if checkpoints:
            self.step, self.params, self._state = checkpoints.restore(params, state)

    def steps(self, update: Update, total: int, checkpoint_every: int, learning_rate: float) -> Iterator[float]:
        """Update until step `total`, yield the loss of each step, and save the last step.

        Raises UserError if a loss is not finite.
        """
        with tqdm.tqdm(total=total, initial=self.step, unit="step", disable=None) as bar:
            while self.step < total:
                self.params, self._state, loss_before = update(self.step, self.params, self._state)
                self.step, loss = self.step + 1, float(loss_before)
                if not math.isfinite(loss):
                    raise errors.UserError(f"the loss is {loss} at step {self.step}: lower {learning_rate=}")
                bar.update()
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
                yield loss
                if self._checkpoints and (self.step % checkpoint_every == 0 or self.step == total):
                    self._checkpoints.save(self.step, self.params, self._state)


class Checkpoints:
    """The newest state of one training run in a folder, complete or absent; durable when `save` returns."""

    def __init__(self, folder: pathlib.Path, run: Mapping[str, Any]):
        """`run` describes the run in JSON types. Only a run with the same description resumes from the folder.

        Raises:
            UserError: the folder holds another run.
        """
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        description, path = json.dumps(run, indent=1, sort_keys=True), folder / "run.json"
        if path.exists() and path.read_text(encoding="utf-8") != description:
            raise errors.UserError(f"{folder}: holds the checkpoints of another run: {_difference(path, run)}")
        with files.new_file(path) as unfinished:
            unfinished.write_text(description, encoding="utf-8")
        options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager((folder / "checkpoints").absolute(), options=options)

    def save(self, step: int, params: nnx.State, optimizer_state: optax.OptState) -> None:
        """Save the state after a step in place of the one before."""
        with files.refusals(self._folder):
            self._manager.save(step, args=ocp.args.StandardSave(_tree(params, optimizer_state)))

    def restore(self, params: nnx.State, optimizer_state: optax.OptState) -> tuple[int, nnx.State, optax.OptState]:
        """Return the saved step and state, placed as the given state; step 0 and the given state if nothing is saved."""
        step = self._manager.latest_step()
        if step is None:
            return 0, params, optimizer_state
        saved = self._manager.restore(step, args=ocp.args.StandardRestore(_tree(params, optimizer_state)))
        nnx.replace_by_pure_dict(params, saved["params"])
        structure = jax.tree.structure(optimizer_state)
        return step, params, jax.tree.unflatten(structure, saved["optimizer"])


def _tree(params: nnx.State, optimizer_state: optax.OptState) -> dict[str, Any]:
    return {"params": nnx.to_pure_dict(params), "optimizer": jax.tree.leaves(optimizer_state)}


def _difference(path: pathlib.Path, run: Mapping[str, Any]) -> str:
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        return ", ".join(f"{key}={saved.get(key)!r}, now {run[key]!r}" for key in run if saved.get(key) != run[key])
    except (ValueError, AttributeError, RecursionError):
        return f"{path} cannot be read"
