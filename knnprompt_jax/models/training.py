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
    """The parameters and optimizer state of a training run, from the newest checkpoint in its folder if there is one."""

    def __init__(self, params: nnx.State, state: optax.OptState, folder: pathlib.Path | None, run: Mapping[str, Any]):
        """Restore the newest checkpoint.

        Args:
            params, state: the parameters and optimizer state before the first step.
            folder: where checkpoints are saved; none are if it is None.
            run: a description in JSON types. Only a run with the same description resumes from the folder.

        Raises:
            UserError: the folder holds another run.
        """
        self.step, self.params, self._state, self._folder = 0, params, state, folder
        if not folder:
            return
        _claim(folder, run)
        options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager((folder / "checkpoints").absolute(), options=options)
        if (step := self._manager.latest_step()) is not None:
            saved = self._manager.restore(step, args=ocp.args.StandardRestore(self._tree()))
            nnx.replace_by_pure_dict(params, saved["params"])
            self.step, self._state = step, jax.tree.unflatten(jax.tree.structure(state), saved["optimizer"])

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
                if self._folder and (self.step % checkpoint_every == 0 or self.step == total):
                    self.save(self._folder)

    def save(self, folder: pathlib.Path) -> None:
        """Save the state in place of the checkpoint before; it is durable when this returns."""
        with files.refusals(folder):
            self._manager.save(self.step, args=ocp.args.StandardSave(self._tree()))

    def _tree(self) -> dict[str, Any]:
        return {"params": nnx.to_pure_dict(self.params), "optimizer": jax.tree.leaves(self._state)}


def _claim(folder: pathlib.Path, run: Mapping[str, Any]) -> None:
    """Write the description of a run to the folder; raises UserError if the folder holds another run."""
    folder.mkdir(parents=True, exist_ok=True)
    description, path = json.dumps(run, indent=1, sort_keys=True), folder / "run.json"
    if path.exists() and (earlier := path.read_text(encoding="utf-8")) != description:
        try:
            saved = json.loads(earlier)
            differences = [f"{key}={saved.get(key)!r}, now {run[key]!r}" for key in run if saved.get(key) != run[key]]
        except (ValueError, AttributeError, RecursionError):
            differences = [f"{path} cannot be read"]
        raise errors.UserError(f"{folder}: holds the checkpoints of another run: {', '.join(differences)}")
    with files.new_file(path) as unfinished:
        unfinished.write_text(description, encoding="utf-8")
