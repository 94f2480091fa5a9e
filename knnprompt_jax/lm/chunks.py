"""Reading prompts so that the process can die at any moment: states of finished chunks are durable, and the rest goes on."""

import dataclasses
import hashlib
import io
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from knnprompt_jax import errors, files, parallel
from knnprompt_jax import progress as progress_lib
from knnprompt_jax.lm.language_model import LanguageModel
from knnprompt_jax.lm.states import States
from knnprompt_jax.prompts import layout, packing

_PLAN = "plan.json"
_SUM_BYTES = 32


def read(
    folder: pathlib.Path,
    model: LanguageModel,
    prompts: layout.Prompts,
    plan: Mapping[str, Any],
    chunk: int,
    progress: progress_lib.Progress | None = None,
    prefix: str = "",
) -> States:
    """The states of all prompts, those of every `chunk` of them written to the folder; started again, it goes on where it died.

    The result is array for array the same, however often the process died, as long as the devices and the model's
    `step_tokens` stay the same. The prefix is read again for every chunk, which large chunks make up for.

    Args:
        plan: what the states depend on beside the prompts, in JSON's types.
        prefix: of the files' names, where a folder is for several sets of prompts by the same plan.

    Raises:
        UserError: the folder holds the chunks of another plan or of other prompts, or cannot be written to.
    """
    finished = _begin(folder, prefix, {**plan, "prompts": prompts_hash(prompts), "chunk": chunk})
    parts = _split(prompts, chunk)
    _compute(finished, model, parts, progress)
    parallel.wait_for_all("chunks computed")
    states = [finished.read(number) for number in range(len(parts))]
    rows = parallel.by_rows(model.mesh, prompts.num_prompts).spec
    whole = jax.tree.map(lambda *arrays: parallel.put(np.concatenate(arrays), model.mesh, rows), *states)
    return whole.replace(deterministic=model.deterministic)


def clear(folder: pathlib.Path) -> None:
    """Removes the folder of chunks, which are no longer needed, and what an earlier clearing left of it when it died."""

    def remove() -> None:
        with files.refusals(folder):
            files.remove_folder(folder)

    parallel.call_in_main(remove)


def prompts_hash(prompts: layout.Prompts) -> str:
    """SHA-256 over the tokens of all prompts, in order."""
    digest = hashlib.sha256()
    for group in prompts.groups:
        for array in (group.index, group.prefix_P, *group.suffixes):
            digest.update(np.int64(len(array)).tobytes())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class _Finished:
    """The states of finished chunks in a folder, each file whole and of this plan, or not there."""

    folder: pathlib.Path
    plan: bytes
    prefix: str = ""

    def write(self, number: int, states: States) -> None:
        """A SHA-256 sum over the plan, the chunk's number and its content; then both arrays in NumPy's format."""
        content = io.BytesIO()
        np.savez(
            content, allow_pickle=False, hidden_NE=np.asarray(states.hidden_NE), log_z_N=np.asarray(states.log_z_N)
        )
        with files.new_file(self._path(number)) as draft:
            draft.write_bytes(self._sum(number, content.getvalue()) + content.getvalue())

    def read(self, number: int) -> States | None:
        """The states of a chunk; None where it is not there, damaged or of another plan, and so to be computed again."""
        try:
            content = self._path(number).read_bytes()
        except FileNotFoundError:
            return None
        if self._sum(number, content[_SUM_BYTES:]) != content[:_SUM_BYTES]:
            return None
        arrays = np.load(io.BytesIO(content[_SUM_BYTES:]), allow_pickle=False)
        return States(arrays["hidden_NE"], arrays["log_z_N"])

    def _sum(self, number: int, content: bytes) -> bytes:
        return hashlib.sha256(b"%s %d " % (self.plan, number) + content).digest()

    def _path(self, number: int) -> pathlib.Path:
        return self.folder / f"{self.prefix}chunk-{number:06d}"


def _begin(folder: pathlib.Path, prefix: str, plan: Mapping[str, Any]) -> _Finished:
    """Makes the folder of chunks with the plan in it, or checks that the plan there is this one."""
    text = json.dumps(plan, sort_keys=True)
    parallel.call_in_main(lambda: _write_plan(folder / f"{prefix}{_PLAN}", json.loads(text)))
    return _Finished(folder, hashlib.sha256(text.encode()).digest(), prefix)


def _write_plan(path: pathlib.Path, plan: dict[str, Any]) -> None:
    """All plans in a folder are of one build: but for their prompts they are the same."""
    with files.refusals(path):
        others = sorted(other for other in path.parent.glob(f"*{_PLAN}") if other != path)
    earlier = _read_plan(path, plan)
    differing = [name for name, value in plan.items() if earlier.get(name) != value]
    for other in others:
        differing += [
            name for name, value in plan.items() if name != "prompts" and _read_plan(other, plan).get(name) != value
        ]
    if differing := list(dict.fromkeys(differing)):
        raise errors.UserError(
            f"{path.parent}: an unfinished build that differs in {', '.join(differing)}: remove it, or choose another folder"
        )
    with files.refusals(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with files.new_file(path) as draft:
        draft.write_text(json.dumps(plan, indent=1), encoding="utf-8")


def _read_plan(path: pathlib.Path, default: dict[str, Any]) -> dict[str, Any]:
    """The plan there; the default where there is none; of one that is damaged nothing, so that it differs."""
    with files.refusals(path):
        if not path.exists():
            return default
        content = path.read_bytes()
    try:
        plan = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return plan if isinstance(plan, dict) else {}


def _compute(
    finished: _Finished,
    model: LanguageModel,
    parts: Sequence[layout.Prompts],
    progress: progress_lib.Progress | None,
) -> None:
    """Writes the states of all chunks that are not there yet; all chunks have one packing, and there is one compilation."""
    groups = [group for part in parts for group in part.groups]
    shapes = packing.choose_shapes(groups, model.step_tokens, model.mesh.shape[parallel.DATA])
    missing = [number for number in range(len(parts)) if finished.read(number) is None]
    parallel.wait_for_all("chunks counted")
    if progress:
        progress(sum(part.num_prompts for number, part in enumerate(parts) if number not in missing), 0)
    for number in missing:
        states = model.states(parts[number], lambda group: shapes[bool(len(group.prefix_P))], progress)
        states = parallel.replicate(states)
        if parallel.is_main():
            finished.write(number, states)


def _split(prompts: layout.Prompts, chunk: int) -> list[layout.Prompts]:
    """Prompts 0 … chunk − 1, the next as many, and so on; each numbered from 0."""
    starts, shown = range(0, prompts.num_prompts, chunk), prompts.demonstrations
    parts = []
    for start in starts:
        groups = []
        for group in prompts.groups:
            members = np.flatnonzero(np.asarray(group.index) // chunk == start // chunk)
            if members.size:
                part = group.take(members)
                groups.append(dataclasses.replace(part, index=part.index - start))
        parts.append(layout.Prompts(tuple(groups), min(chunk, prompts.num_prompts - start), demonstrations=shown))
    return parts
