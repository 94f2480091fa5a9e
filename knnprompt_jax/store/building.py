"""Building a saved datastore so that it can die at any moment: finished chunks of anchors are durable, and the rest goes on."""

import dataclasses
import hashlib
import json
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from knnprompt_jax import errors, files, lm, parallel
from knnprompt_jax import progress as progress_lib
from knnprompt_jax.prompts import layout, packing
from knnprompt_jax.store import chunks, storage, stores
from knnprompt_jax.store import manifest as manifest_lib

CHUNK = 1024
_PLAN = "plan.json"


def build_resumable(
    folder: pathlib.Path,
    model: lm.LanguageModel,
    prompts: layout.Prompts,
    labels: Sequence[int],
    ids: Sequence[int],
    provenance: manifest_lib.Provenance,
    *,
    kind: str = "dense",
    chunk: int = CHUNK,
    overwrite: bool = False,
    on_host: bool = False,
    memory_mb: float = stores.MEMORY_MB,
    progress: progress_lib.Progress | None = None,
    **options: Any,
) -> stores.Store:
    """Builds a store from the prompts of its anchors and saves it in the folder; started again, it goes on where it died.

    After every `chunk` prompts their states are written beside the folder. The result is array for array the same,
    however often the build died, as long as the devices and the model's `step_tokens` stay the same. A finished store of
    the same anchors is loaded. The prefix is read again for every chunk, which large chunks make up for.

    Args:
        labels, ids: the classes of the prompts and their own numbers.
        overwrite: replace another store, or a damaged one, in the folder.
        kind, on_host, memory_mb, options: as for `stores.build`.

    Raises:
        UserError: the folder holds another store, or an unfinished build of other anchors; `chunk` is not positive.
    """
    folder, options = folder.absolute(), stores.blank(kind, provenance.label_ids, **options).options
    if chunk < 1:
        raise errors.UserError(f"chunk={chunk}: at least 1 prompt is needed")
    if not prompts.num_prompts:
        raise errors.UserError("a datastore needs at least one anchor")
    anchors = prompts_hash(prompts, labels, ids)
    unfinished = folder.with_name(f".{folder.name}.building")
    plan = json.loads(json.dumps({**dataclasses.asdict(provenance), "anchors": anchors, "chunk": chunk}))
    if storage.recovered(folder):
        try:
            saved = _finished(folder, provenance, anchors, kind, options)
            _clear(unfinished, plan)
            mesh = model.mesh if model.mesh.size > 1 else None
            return saved.load(model.head, mesh=mesh, on_host=on_host, memory_mb=memory_mb)
        except errors.UserError:
            if not overwrite:
                raise
    _begin(unfinished, plan)
    count = -(-prompts.num_prompts // chunk)
    _compute(unfinished, model, _split(prompts, chunk), progress)
    parallel.wait_for_all("datastore computed")
    rows = parallel.by_rows(model.mesh, prompts.num_prompts).spec
    states = jax.tree.map(lambda array: parallel.put(array, model.mesh, rows), chunks.read_all(unfinished, count))
    options |= {"ids": ids, "on_host": on_host, "memory_mb": memory_mb}
    store = stores.build(kind, model.head, states, labels, provenance.label_ids, **options)
    storage.save(folder, store, provenance, overwrite, anchors)
    _clear(unfinished, plan)
    return store


def prompts_hash(prompts: layout.Prompts, labels: Sequence[int], ids: Sequence[int]) -> str:
    """SHA-256 over the tokens of all prompts, their classes and ids, in order."""
    digest = hashlib.sha256(np.array([labels, ids], np.int64).tobytes())
    for group in prompts.groups:
        digest.update(f"{len(group.prefix_P)} {len(group.suffixes)}".encode())
        lengths_N = np.array([len(suffix) for suffix in group.suffixes], np.int64)
        for array in (group.prefix_P, np.asarray(group.index, np.int64), lengths_N, *group.suffixes):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _finished(
    folder: pathlib.Path, provenance: manifest_lib.Provenance, anchors: str, kind: str, options: dict[str, Any]
) -> storage.Saved:
    saved = storage.open_folder(folder, provenance)
    manifest = saved.manifest
    if (manifest.anchors, manifest.kind, manifest.options) != (anchors, kind, options):
        raise errors.UserError(
            f"{folder}: holds a {manifest.kind} store of other anchors or options; choose another folder, or overwrite it"
        )
    return saved


def _begin(unfinished: pathlib.Path, plan: dict[str, Any]) -> None:
    """Makes the folder of chunks with the plan in it, or checks that the plan there is this one."""
    if other := _differences(unfinished, plan):
        raise errors.UserError(
            f"{unfinished}: an unfinished build that differs in {', '.join(other)}: remove it, or choose another folder"
        )
    parallel.wait_for_all("datastore compared")
    if parallel.is_main():
        unfinished.mkdir(parents=True, exist_ok=True)
        with files.new_file(unfinished / _PLAN) as draft:
            draft.write_text(json.dumps(plan, indent=1), encoding="utf-8")
    parallel.wait_for_all("datastore planned")


def _clear(unfinished: pathlib.Path, plan: dict[str, Any]) -> None:
    """Removes the chunks of a build that is finished."""
    if parallel.is_main() and not _differences(unfinished, plan):
        shutil.rmtree(unfinished, ignore_errors=True)


def _differences(unfinished: pathlib.Path, plan: dict[str, Any]) -> list[str]:
    path = unfinished / _PLAN
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else plan
    return [name for name, value in plan.items() if earlier.get(name) != value]


def _compute(
    unfinished: pathlib.Path,
    model: lm.LanguageModel,
    parts: list[layout.Prompts],
    progress: progress_lib.Progress | None,
) -> None:
    """Writes the states of all chunks that are not there yet; all chunks have one packing, and there is one compilation."""
    groups = [group for part in parts for group in part.groups]
    shapes = packing.choose_shapes(groups, model.step_tokens, model.mesh.shape[parallel.DATA])
    missing = [number for number in range(len(parts)) if chunks.read(unfinished, number) is None]
    parallel.wait_for_all("datastore counted")
    if progress:
        progress(sum(part.num_prompts for number, part in enumerate(parts) if number not in missing), 0)
    for number in missing:
        states = model.states(parts[number], lambda group: shapes[bool(len(group.prefix_P))], progress)
        states = parallel.replicate(states)
        if parallel.is_main():
            chunks.write(unfinished, number, states)


def _split(prompts: layout.Prompts, chunk: int) -> list[layout.Prompts]:
    """Prompts 0 … chunk − 1, the next as many, and so on; each numbered from 0."""
    return [
        _part(prompts, start, min(start + chunk, prompts.num_prompts)) for start in range(0, prompts.num_prompts, chunk)
    ]


def _part(prompts: layout.Prompts, start: int, stop: int) -> layout.Prompts:
    groups = []
    for group in prompts.groups:
        index = np.asarray(group.index)
        members = np.flatnonzero((index >= start) & (index < stop))
        if members.size:
            suffixes = tuple(group.suffixes[member] for member in members)
            groups.append(layout.PromptGroup(group.prefix_P, suffixes, index[members] - start))
    return layout.Prompts(tuple(groups), stop - start)
